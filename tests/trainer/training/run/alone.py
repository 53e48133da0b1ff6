"""Two ranks, of which rank 1 waits for rank 0 in collectives."""

import re
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from deepspeed.utils import groups

from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.run.watchdog import Watchdog, wait_at_most


def main(timed_out: Path) -> None:
    """Let a collective time out, then let rank 0 work alone for longer than that, then let it hang."""
    rank = World.from_environment().rank
    join(World.from_environment())
    of_deepspeed = groups._clone_world_group()
    wait_at_most(1.0)
    if rank:
        try:
            dist.all_reduce(torch.ones(1), group=of_deepspeed)
        except RuntimeError as error:
            print("short:", *re.findall("Timed out waiting 1000ms", str(error)), flush=True)
        timed_out.touch()
    while not timed_out.exists():
        time.sleep(0.1)
    with Watchdog(threading.TIMEOUT_MAX, rank):
        if rank == 0:
            time.sleep(3.0)
        ones = torch.ones(1)
        dist.all_reduce(ones)
        if rank:
            print("long:", ones.item(), flush=True)
    if rank == 0:
        threading.Event().wait()
    with Watchdog(1.0, rank, grace=0.0):
        hang()


def hang() -> None:
    """Wait for a rank that does not come."""
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main(Path(sys.argv[-1]))
