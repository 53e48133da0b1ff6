"""The ranks wait for rank 0, which checks everything first, and then start or exit together with it.

`world.join` calls `meet`, once a run, before the engine is made.

Launchers do not end all ranks when rank 0 fails: DeepSpeed's ends only the ranks of its own host, MPICH's none. To
arrive takes a rank minutes, and has its own limit; rank 0 may check for hours.
"""

import base64
import hashlib
import json
import os
import socket
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Collection
from contextlib import suppress
from itertools import groupby
from threading import Thread

import psutil
from deepspeed.constants import default_pg_timeout
from torch.distributed import DistNetworkError, TCPStore

from deepsiam.data_prep.common.argument_types import port_number
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.errors import SharedError

ARRIVAL = default_pg_timeout  # within which every rank arrives: DEEPSPEED_TIMEOUT, in minutes
OTHERS_SECONDS = 60  # how long rank 0 waits to end the others: their hosts may import more slowly
CONNECT_SECONDS = 3  # for a store that is there; a program that is none stays silent
POLL_SECONDS = 0.1
GO, END = 1, 2  # what rank 0 says; to end with an exit code it says END + code
FAULT = 1  # exit code


class AbsentError(Exception):
    """A rank did not arrive in time, or ended before the others could join it; the message names it and its host."""


def meet_at() -> tuple[str, int]:
    """Return the address and port where the ranks meet, and set their variables if no launcher has set them."""
    return os.environ.setdefault("MASTER_ADDR", "127.0.0.1"), int(os.environ.setdefault("MASTER_PORT", str(port())))


def port() -> int:
    """Return the port where the ranks meet; raise SharedError if MASTER_PORT is not one."""
    try:
        return port_number(os.environ.get("MASTER_PORT", "29500"))
    except ArgumentTypeError as error:
        raise SharedError(f"MASTER_PORT: {error}: set another, or unset it") from None


def is_by_torchrun() -> bool:
    """Return whether torchrun has started this rank: it serves the port where ranks meet, and ends all of them."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def free_port() -> int:
    """Return a port of this host that is free now, for ranks of this host alone."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def serve() -> TCPStore | None:
    """Let the other ranks know that rank 0 has arrived, for as long as the returned store is kept; rank 0 calls this.

    Raise InputError if the port is in use.
    """
    if is_by_torchrun():
        return None
    try:
        store = _store(True)
    except RuntimeError as error:
        if "EADDRINUSE" not in str(error) and "address already in use" not in str(error):
            raise
        address, number = meet_at()
        raise InputError(
            f"port {number} of {address} is in use, perhaps by another run: give deepspeed another --master_port"
        ) from None
    store.set(_key("here"), "1")
    return store


def meet(rank: int, ranks: int) -> TCPStore | None:
    """Return once all ranks have arrived and rank 0 has checked everything; keep the store until the ranks have joined.

    If rank 0 ends, raise SystemExit with its code, or AbsentError where it has not said why, or a rank did not arrive.
    """
    if rank == 0:
        store = serve()
        if store:
            _wait_for_others(store, ranks)
        return store
    if is_by_torchrun():
        return None
    store = _find_rank_0()
    try:
        store.set(_key(f"host/{rank}"), socket.gethostname())
        store.add(_key(f"at/{rank}"), 1)
        while not (verdict := store.add(_key("said"), 0)):  # adding 0 reads without waiting for the key
            time.sleep(POLL_SECONDS)
        if verdict != GO:
            store.add(_key("ended"), 1)
    except DistNetworkError:
        raise AbsentError(f"rank 0 on {meet_at()[0]} has ended before the ranks could join it") from None
    if verdict != GO:
        raise SystemExit(verdict - END)
    return store


def stop_answering(store: TCPStore) -> None:
    """Stop accepting ranks; rank 0 calls this once all have joined, because a restarted rank must not join."""
    for name in ("here", "said"):
        store.delete_key(_key(name))


def end_others(ranks: int, code: int) -> None:
    """End the ranks that wait for rank 0 with an exit code; rank 0 calls this. torchrun ends them by itself."""
    if is_by_torchrun():
        return
    with suppress(RuntimeError, InputError):  # another program has the port, or there is none: nobody can be reached
        try:
            store = _store(True)
        except RuntimeError:
            store = _connect(CONNECT_SECONDS)  # to the store of another run: the ranks wait there too
        _end(store, ranks - 1, code)


def _end(store: TCPStore, ranks: int, code: int) -> None:
    store.set(_key("said"), str(END + code))
    store.set(_key("here"), "1")
    end = time.monotonic() + OTHERS_SECONDS
    while store.add(_key("ended"), 0) < ranks and time.monotonic() < end:
        time.sleep(POLL_SECONDS)


def _wait_for_others(store: TCPStore, ranks: int) -> None:
    """Let all other ranks go once they have arrived; end those that have if one does not come in time."""
    end, absentees = time.monotonic() + ARRIVAL.total_seconds(), list(range(1, ranks))
    while absentees := [rank for rank in absentees if not store.add(_key(f"at/{rank}"), 0)]:
        if time.monotonic() > end:
            hosts = {
                rank: store.get(_key(f"host/{rank}")).decode() for rank in range(1, ranks) if rank not in absentees
            }
            _end(store, len(hosts), FAULT)
            raise AbsentError(_absent(absentees, hosts, ranks))
        time.sleep(POLL_SECONDS)
    store.set(_key("said"), str(GO))


def _find_rank_0() -> TCPStore:
    """Return the store of rank 0, once it has arrived.

    A run that is ending still has its store, which no longer answers: wait until it is gone, and for the next rank 0.
    """
    end = time.monotonic() + ARRIVAL.total_seconds()
    while (seconds := end - time.monotonic()) > 0:
        with suppress(OSError, RuntimeError):  # nobody listens there yet, or no longer
            socket.create_connection(meet_at(), seconds).close()  # torch's own attempts would print traces
            store = _connect(seconds)
            while time.monotonic() < end:
                if store.add(_key("here"), 0):
                    return store
                time.sleep(POLL_SECONDS)
        time.sleep(POLL_SECONDS)
    raise AbsentError(_late(f"rank 0 on {meet_at()[0]}"))


def _absent(absentees: Collection[int], hosts: dict[int, str], ranks: int) -> str:
    """Describe ranks that did not arrive by their numbers and hosts, which another rank of it or the launcher knows."""
    launched = _launched_on()
    ranks_here = int(os.environ.get("LOCAL_SIZE", 1))

    def host(rank: int) -> str:
        if rank < ranks_here:
            return socket.gethostname()
        neighbours = (peer for peer in hosts if peer // ranks_here == rank // ranks_here)
        return (
            launched[rank] if len(launched) == ranks else hosts.get(next(neighbours, -1), f"host {rank // ranks_here}")
        )

    groups = []
    for name, group in groupby(absentees, host):
        numbers = [str(rank) for rank in group]
        groups.append(f"rank{'s' * (len(numbers) > 1)} {', '.join(numbers)} on {name}")
    return _late("; ".join(groups))


def _late(ranks: str) -> str:
    limit = ARRIVAL.total_seconds() / 60
    return f"{ranks}: not arrived in {limit:g} min (DEEPSPEED_TIMEOUT): see what is printed there, or whether it hangs"


def _launched_on() -> list[str]:
    """Return the host of each rank, which DeepSpeed's launcher has been told; nothing where another one is used."""
    with suppress(psutil.Error, ValueError):
        words = psutil.Process(os.getppid()).cmdline()
        option = next((word for word in words if word.startswith("--world_info=")), "")
        hosts = json.loads(base64.urlsafe_b64decode(option.partition("=")[2]) or "{}")
        return [name for name, slots in hosts.items() for _ in slots]
    return []


def _store(serves: bool) -> TCPStore:
    # multi_tenant: torch's own rendezvous shares this server within the process
    return TCPStore(*meet_at(), None, serves, ARRIVAL, wait_for_workers=False, multi_tenant=True)


def _connect(seconds: float) -> TCPStore:
    """Return the store that another process serves; raise RuntimeError if the port's owner is not a store.

    A store's timeout has no effect on a program that accepts the connection and stays silent.
    """
    stores: list[TCPStore] = []

    def connect() -> None:
        with suppress(RuntimeError):  # reported below
            stores.append(_store(False))

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(seconds)
    if not stores:
        raise RuntimeError("the port is not a store's")
    return stores[0]


def _key(name: str) -> str:
    # of the command line, without the rank's number: another run that has the port must not be taken for this one
    words = [word for word in sys.argv if not word.startswith("--local_rank")]
    return f"deepsiam/{hashlib.sha256(repr(words).encode()).hexdigest()}/{name}"
