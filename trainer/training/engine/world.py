"""This process among the ranks: its rank, how it joins the others, its device's memory.

A rank joins once, when rank 0 has checked all; from then on the engine sums and gathers through it.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import deepspeed
import torch.distributed as dist
from torch.distributed import distributed_c10d

from deepsiam.data_prep.common.errors import InputError, printable, without_controls
from deepsiam.trainer.training.engine.device import accelerator, require_own_gpu, set_device, use_threads_of_a_rank
from deepsiam.trainer.training.engine.rendezvous import (
    ARRIVAL,
    POLL_SECONDS,
    AbsentError,
    free_port,
    is_by_torchrun,
    meet,
    meet_at,
    port,
    stop_answering,
)
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.launchers import LAUNCHERS, RANK_0_FIRST_SECONDS

# a rank that lost another waits for the launcher to end it, so that only the error of the other is seen
FAILED_FIRST_SECONDS = 30
YEAR_SECONDS = 365 * 86400.0  # gloo counts nanoseconds in 64 bits
ALONE_SECONDS = 12 * 3600.0  # how long one rank may work while the others wait: train faiss, convert a checkpoint
# how errors say that another rank is gone; PyTorch ends the process itself where NCCL's watchdog finds it first
LOST_RANK_SIGNS = (
    "Connection closed by peer",  # gloo
    "Connection reset by peer",
    "Connection closed by remote peer",  # NCCL
    "NCCL communicator was aborted",
    "ncclRemoteError",
    "ncclSystemError",  # also a cause on this host, such as a full /dev/shm
    "remote process exited",
    "Watchdog caught collective operation timeout",  # ProcessGroupNCCL's
    "failed to recv, got 0 bytes",  # TCPStore
    "Broken pipe",
)


@dataclass(frozen=True)
class World:
    """The place of this process: global rank, number of ranks, rank and number of ranks on this host."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def from_environment(cls) -> World:
        """Read the launcher's environment variables; without a launcher, return a single process.

        Raise InputError if a variable that tells several ranks apart is missing: each rank would train alone.
        """
        for names in LAUNCHERS:
            if all(name in os.environ for name in names):
                rank, size, local_rank = map(_number, names[:3])
                return cls(rank, size, local_rank, _on_this_host(names[3]))
        for names in LAUNCHERS:
            if names[1] in os.environ and _number(names[1]) > 1:
                unset = " and ".join(name for name in names if name not in os.environ)
                raise InputError(
                    f"{names[1]} is {os.environ[names[1]]}, and {unset} not set: start the ranks with deepspeed, "
                    f"torchrun, mpirun or srun, or set {', '.join(LAUNCHERS[0])} for each"
                )
        return cls(rank=0, size=1, local_rank=0, local_size=1)


def _number(name: str) -> int:
    """Return the number that a launcher has set; raise InputError where a variable is not one."""
    value = os.environ.get(name, "")
    if not (value.isascii() and value.isdigit()):
        raise InputError(f"{name} is {value!r}, not a number: a launcher sets it; unset it to run without one")
    return int(value)


def _on_this_host(name: str) -> int:
    """Return the number of ranks on this host, from a number or from Slurm's list: `8(x2),4` means 8, 8 and 4."""
    ranks: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ[name]):
        ranks += [int(number)] * int(times or 1)
    if not ranks:
        return _number(name)
    return ranks[_number("SLURM_NODEID")] if len(ranks) > 1 else ranks[0]


def device_memory() -> int:
    """Return the bytes of memory of this rank's accelerator; on a CPU, the rank's share of the host's memory."""
    total = int(accelerator().total_memory())
    return total // World.from_environment().local_size if accelerator().device_name() == "cpu" else total


_is_joined = False


def has_joined() -> bool:
    """Whether this process has joined the other ranks."""
    return _is_joined


def has_address(world: World) -> bool:
    """Whether this rank knows where the ranks meet."""
    return world.size == world.local_size or "MASTER_ADDR" in os.environ


def check_address(world: World) -> None:
    """Raise SharedError if the ranks do not know where to meet: mpirun and srun do not tell those of several hosts."""
    with rank_0_speaks(world.rank):
        port()
        if has_address(world):
            return
        raise SharedError(
            "MASTER_ADDR is not set, and the ranks are on several hosts: set it to the address of rank 0's host "
            "(mpirun -x MASTER_ADDR=node1, mpiexec -genv MASTER_ADDR node1, or export it before srun)"
        )


def say(*lines: str) -> None:
    """Print lines, from rank 0 alone."""
    if lines and World.from_environment().rank == 0:
        print(*map(without_controls, lines), sep="\n", flush=True)


def warn(line: str) -> None:
    """Print a line on stderr, from rank 0 alone."""
    if World.from_environment().rank == 0:
        print(printable(line), file=sys.stderr, flush=True)


@contextmanager
def rank_0_speaks(rank: int) -> Iterator[None]:
    """Let one rank print the InputError that all ranks raise in the block: rank 0, unless it is much later.

    The others raise SystemExit. The launcher ends all ranks as soon as one ends; a busy host may take long to do so.
    """
    try:
        yield
    except InputError as error:
        if _is_joined and not _first_to_say(str(error), rank):
            raise SystemExit(2) from None
        if rank and not _is_joined:
            time.sleep(RANK_0_FIRST_SECONDS)
        raise


def _first_to_say(line: str, rank: int) -> bool:
    """Return whether this rank prints a line: rank 0, or, where rank 0 does not in time, the first of the others."""
    store, key = distributed_c10d._get_default_store(), f"deepsiam/printed/{line}"
    end = time.monotonic() + RANK_0_FIRST_SECONDS
    try:
        while rank and time.monotonic() < end and not store.check([key]):
            time.sleep(POLL_SECONDS)
        return store.add(key, 1) == 1
    except RuntimeError:  # rank 0, which has the store, has ended: with this line, as all ranks find it
        return rank == 0


@contextmanager
def failed_rank_exits_first() -> Iterator[None]:
    """If another rank has died, wait to be killed by the launcher, so that only the failed rank prints an error."""
    try:
        yield
    except RuntimeError as error:
        if not any(sign in str(error) for sign in LOST_RANK_SIGNS):
            raise
        time.sleep(FAILED_FIRST_SECONDS)
        reason = printable(str(error))
        raise SystemExit(f"lost contact with another rank, which reported no error: {reason}") from error


def joined() -> World:
    """Return this process's place among the ranks, after it has joined the others, if there are any; see `join`."""
    world = World.from_environment()
    if world.size > 1:
        join(world)
    return world


def join(world: World) -> None:
    """Join the other ranks, each with its own device; collectives then wait for hours, or as a watchdog says.

    Raise InputError if their port is in use, or another rank has the same GPU; SystemExit if rank 0 has ended, which
    has printed the reason, or a rank does not arrive, or cannot be reached.
    """
    check_address(world)
    meet_at()
    place = (world.rank, world.size, world.local_rank, world.local_size)
    os.environ |= {name: str(value) for name, value in zip(LAUNCHERS[0], place, strict=True)}
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # DeepSpeed uses names of collectives that newer torch has renamed; users cannot act on the warning
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # each rank has chosen its device, which `barrier` supposes
    warnings.filterwarnings("ignore", message=r"barrier\(\): using the device under current context")
    # CPU ranks use gloo only; DeepSpeed's shared-memory kernel would need a C++ compiler at start. DeepSpeed would also
    # start compilers to find out which kernels it can build here, so the answer "no" is preset for all of them
    deepspeed.ops.__compatible_ops__ = defaultdict(bool)
    use_threads_of_a_rank(world.local_size)
    device_number = set_device(world.local_rank)  # else models without an engine would all be on the first device
    # DeepSpeed takes the local rank for the number of the device, and checks that Open MPI's is the same
    os.environ |= {name: str(device_number) for name in ("LOCAL_RANK", LAUNCHERS[2][2]) if name in os.environ}
    if world.size == 1 and not is_by_torchrun():
        # it meets nobody: with the launcher's usual port, two runs of one rank each could not share a host
        os.environ["MASTER_PORT"] = str(free_port())
    global _is_joined
    try:
        store = meet(world.rank, world.size) if world.size > 1 else None
        require_own_gpu(world.rank, world.local_rank, store)
        deepspeed.init_distributed(verbose=False, timeout=ARRIVAL)
        dist.barrier()  # all have joined; with NCCL, none can reach another before a first collective
    except AbsentError as error:
        if world.local_rank:
            time.sleep(RANK_0_FIRST_SECONDS)  # one rank of a host says it
        raise SystemExit(str(error)) from None
    except RuntimeError as error:
        if not re.search("time(d )?out", str(error), re.IGNORECASE):
            raise
        raise SystemExit(
            f"rank {world.rank} on {socket.gethostname()}: all ranks arrived, but could not connect to each other in "
            f"{ARRIVAL.total_seconds() / 60:g} min (DEEPSPEED_TIMEOUT): try them with trainer.doctor"
        ) from error
    wait_at_most(ALONE_SECONDS)
    if store and world.rank == 0:
        stop_answering(store)
    _is_joined = True


def leave() -> None:
    """Leave the ranks, if this process has joined them, so that it can join others."""
    global _is_joined
    if _is_joined:
        deepspeed.comm.destroy_process_group()
        _is_joined = False


def wait_at_most(seconds: float) -> None:
    """Limit how long a collective waits for the other ranks, in all process groups that exist.

    DeepSpeed gives its timeout to the first group only: its others have PyTorch's, 10 minutes with NCCL.
    """
    timeout = timedelta(seconds=min(seconds, YEAR_SECONDS))
    for group in list(distributed_c10d._world.pg_map):
        distributed_c10d._set_pg_timeout(timeout, group)
