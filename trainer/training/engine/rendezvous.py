"""The ranks wait for rank 0, which checks everything first, and then start or exit together with it.

Launchers do not end all ranks when rank 0 fails: DeepSpeed's ends only the ranks of its own host, MPICH's none.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from argparse import ArgumentTypeError
from contextlib import suppress
from datetime import timedelta
from threading import Thread

from deepspeed.constants import default_pg_timeout
from torch.distributed import DistNetworkError, TCPStore

from data_prep.common.argument_types import port_number
from data_prep.common.errors import InputError

GO = "go"
OTHERS_SECONDS = 60  # how long rank 0 waits to end the others: their hosts may import more slowly
CONNECT_SECONDS = 3


def meet_at() -> tuple[str, int]:
    """Return the address and port where the ranks meet, and set their variables if no launcher has set them."""
    return os.environ.setdefault("MASTER_ADDR", "127.0.0.1"), int(os.environ.setdefault("MASTER_PORT", str(port())))


def port() -> int:
    """Return the port where the ranks meet; raise InputError if MASTER_PORT is not one."""
    try:
        return port_number(os.environ.get("MASTER_PORT", "29500"))
    except ArgumentTypeError as error:
        raise InputError(f"MASTER_PORT: {error}: set another, or unset it") from None


def wait_for_rank_0(rank: int) -> TCPStore | None:
    """Return once rank 0 has arrived; keep the returned store until the ranks have joined, and `close` it then.

    A run that is ending still has its store, which no longer answers: wait until it is gone, and for the next rank 0.

    Raises:
        SystemExit: rank 0 has ended, with the same code; it has printed the reason.
        RuntimeError: the port is in use.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return None  # torchrun itself serves the port, and ends all ranks
    if rank == 0:
        store = _store(True, default_pg_timeout)
        store.set(_key(), GO)
        return store
    store, said = _answer()
    if said != GO:
        store.add(f"{_key()}/ended", 1)
        raise SystemExit(int(said))
    store.add(f"{_key()}/met", 1)
    return store


def close(store: TCPStore, ranks: int) -> None:
    """Answer no rank that comes later, as one that was started again; rank 0 calls this once the ranks have joined."""
    while store.add(f"{_key()}/met", 0) < ranks - 1:
        time.sleep(0.01)
    store.delete_key(_key())


def _answer() -> tuple[TCPStore, str]:
    """Return the store of rank 0, and what it says there."""
    end = time.monotonic() + default_pg_timeout.total_seconds()
    while True:
        store = _store(False, default_pg_timeout)
        try:
            return store, store.get(_key()).decode()
        except DistNetworkError:  # that store was of a run that has ended
            if time.monotonic() > end:
                raise


def end_others(ranks: int, code: int) -> None:
    """End the ranks that wait for rank 0 with an exit code; rank 0 calls this."""
    with suppress(RuntimeError, InputError):  # another program has the port, or there is none: nobody can be reached
        try:
            store = _store(True, default_pg_timeout)
        except RuntimeError:
            store = _store_of_another_run()  # the ranks wait there too
        store.set(_key(), str(code))
        end = time.monotonic() + OTHERS_SECONDS
        while store.add(f"{_key()}/ended", 0) < ranks - 1 and time.monotonic() < end:
            time.sleep(0.1)


def _store(serves: bool, timeout: timedelta) -> TCPStore:
    """Return the store at the port where the ranks meet; torch's rendezvous shares a server within a process."""
    return TCPStore(*meet_at(), None, serves, timeout, wait_for_workers=False, multi_tenant=True)


def _store_of_another_run() -> TCPStore:
    """Return the store of another run that has the port; raise RuntimeError if the port's owner is not a store.

    A store's timeout has no effect on a program that accepts the connection and stays silent.
    """
    found: list[TCPStore] = []

    def connect() -> None:
        with suppress(RuntimeError):  # reported below
            found.append(_store(False, timedelta(seconds=CONNECT_SECONDS)))

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    if not found:
        raise RuntimeError("the port is not a store's")
    return found[0]


def _key() -> str:
    """Return a key that all ranks of a command share, and that differs for another run that has the port."""
    words = [word for word in sys.argv if not word.startswith("--local_rank")]
    return f"deepsiam/{hashlib.sha256(repr(words).encode()).hexdigest()}"
