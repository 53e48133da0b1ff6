"""Time the sum of a tensor over all ranks, started by DeepSpeed's launcher as for a training run.

No part of a training: `trainer.doctor` starts it, as a rank would be started.

deepspeed [launcher options] --module deepsiam.trainer.training.engine.all_reduce NUMBERS DTYPE

Rank 0 prints a line of JSON, the fields of `Measured`. The doctor runs this before a training run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psutil
import torch
import torch.distributed as dist

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.training.engine.device import accelerator, this_device
from deepsiam.trainer.training.engine.world import World, join

LATE = 76  # exit code: the ranks did not finish in time
LIMIT_SECONDS = 35  # for the ranks to meet and measure; after this each rank ends by itself, on any host
MEASURE_SECONDS = 5  # approximate time for the whole measurement
FIRST, GROWTH = 1 << 14, 4  # numbers in the first tensor; how many times larger each next tensor is
MOST_BYTES = 1 << 28  # of a tensor: a larger one is not transferred faster
REPEATS, LATENCIES = 3, 20


@dataclass(frozen=True)
class Measured:
    """The result of the measurement over all ranks."""

    ranks: int
    address: str  # where the ranks met
    size: int  # bytes of the largest tensor that was summed: the requested size, or what the time allowed
    seconds: float  # median time of its sum
    latency: float  # median seconds for the sum of one number
    sent: list[dict[str, int]]  # by rank: the bytes that each interface of its host sent meanwhile


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command in one rank."""
    world = World.from_environment()
    with exit_on_input_error(f"all_reduce: rank {world.rank}"):
        given = _arguments(argv)
        _end_late(world.rank)
        join(world)
        measured = measure(given.numbers, getattr(torch, given.dtype), this_device(), world)
        if world.rank == 0:
            print(json.dumps(asdict(measured)), flush=True)
        dist.barrier()
    sys.stderr.flush()
    os._exit(0)  # a live process-group thread may abort the interpreter's shutdown


def measure(numbers: int, dtype: torch.dtype, device: torch.device, world: World) -> Measured:
    """Time the sum of `numbers` numbers, or of fewer if that takes too long; all ranks call.

    Every duration is that of the slowest rank, so that all ranks choose the same size.
    """
    deadline = time.monotonic() + MEASURE_SECONDS
    one = torch.ones(1, dtype=dtype, device=device)
    latency = statistics.median(_seconds(one) for _ in range(LATENCIES))
    most = min(numbers, MOST_BYTES // dtype.itemsize)
    count = min(most, FIRST)
    while count < most:
        seconds = _seconds(torch.ones(count, dtype=dtype, device=device))
        left = _slowest(deadline - time.monotonic(), least=True)
        if GROWTH * seconds * (REPEATS + 1) > left:
            break
        count = min(most, GROWTH * count)
    tensor = torch.ones(count, dtype=dtype, device=device)
    _seconds(tensor)  # the first use of memory takes longer
    before = _sent()
    seconds = statistics.median(_seconds(tensor) for _ in range(REPEATS))
    sent: list[dict[str, int]] = [{}] * world.size
    dist.all_gather_object(sent, {name: after - before.get(name, 0) for name, after in _sent().items()})
    return Measured(world.size, os.environ["MASTER_ADDR"], count * dtype.itemsize, seconds, latency, sent)


def _seconds(tensor: torch.Tensor) -> float:
    """Return the seconds that the slowest rank needs to sum a tensor over all ranks."""
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(tensor)
    accelerator().synchronize()
    return _slowest(time.perf_counter() - start)


def _slowest(seconds: float, *, least: bool = False) -> float:
    """Return the largest of all ranks' values, or the smallest."""
    value = torch.tensor(seconds, dtype=torch.float64, device=this_device())
    dist.all_reduce(value, dist.ReduceOp.MIN if least else dist.ReduceOp.MAX)
    return float(value)


def _sent() -> dict[str, int]:
    """Return the bytes that each network interface has sent since it was created."""
    return {name: counted.bytes_sent for name, counted in psutil.net_io_counters(pernic=True).items()}


def _end_late(rank: int) -> None:
    """End this process at the time limit: if it could not reach the others, it would wait for many minutes."""

    def end() -> None:
        print(f"all_reduce: rank {rank}: the ranks did not meet and finish in {LIMIT_SECONDS} s", file=sys.stderr)
        sys.stderr.flush()
        os._exit(LATE)

    timer = threading.Timer(LIMIT_SECONDS, end)
    timer.daemon = True
    timer.start()
    signal.alarm(LIMIT_SECONDS + 5)  # in case the main thread holds Python's lock


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="all_reduce", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("numbers", type=int)
    parser.add_argument("dtype", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # from the launcher; the environment has it too
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
