"""Sum a tensor over all ranks, started by DeepSpeed's launcher as for a training run: do they reach each other?

No part of a training: `trainer.doctor` starts it, as a rank would be started.

deepspeed [launcher options] --module deepsiam.trainer.training.engine.all_reduce

Rank 0 prints a line that begins with MET if the sum is right.
"""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.trainer.training.engine.device import this_device
from deepsiam.trainer.training.engine.world import World, join

MET = "the ranks met at "
TIMEOUT_CODE = 76  # exit code: the ranks did not finish in time
LIMIT_SECONDS = 35  # for the ranks to meet and sum; after this each rank ends by itself, on any host
NUMBERS = 1 << 20  # many packets: some networks carry small ones alone


def main() -> None:
    """Run the command in one rank."""
    world = World.from_environment()
    with exit_on_input_error(f"all_reduce: rank {world.rank}"):
        _end_late(world.rank)
        join(world)
        tensor = torch.full((NUMBERS,), world.rank + 1.0, device=this_device())
        dist.all_reduce(tensor)
        if not bool((tensor == world.size * (world.size + 1) / 2).all()):
            raise InputError("the sum over the ranks is wrong")
        dist.barrier()  # rank 0 speaks for all: every sum is right
        if world.rank == 0:
            print(f"{MET}{os.environ['MASTER_ADDR']}, all {world.size}", flush=True)
    sys.stderr.flush()
    os._exit(0)  # a live process-group thread may abort the interpreter's shutdown


def _end_late(rank: int) -> None:
    """End this process at the time limit: if it could not reach the others, it would wait for many minutes."""

    def end() -> None:
        print(f"all_reduce: rank {rank}: the ranks did not meet and finish in {LIMIT_SECONDS} s", file=sys.stderr)
        sys.stderr.flush()
        os._exit(TIMEOUT_CODE)

    timer = threading.Timer(LIMIT_SECONDS, end)
    timer.daemon = True
    timer.start()
    signal.alarm(LIMIT_SECONDS + 5)  # in case the main thread holds Python's lock


if __name__ == "__main__":
    main()
