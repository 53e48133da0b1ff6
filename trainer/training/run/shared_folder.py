"""Check that all ranks see the same run folder, and have read the same recipe.

The command calls both checks once, between building the job and the first step.
"""

import socket
import time
import uuid
from pathlib import Path

import torch.distributed as dist

from deepsiam.trainer.training.checkpoints.checkpoint import differences
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.run.job import Job, complete

WAIT_SECONDS = 5.0  # until a file written by rank 0 is visible through a network file system


def check_shared(run: Path) -> None:
    """Raise SharedError if a rank does not see a file that rank 0 writes into the run's folder.

    The file's name is new each time, because a network file system may cache that a name was missing.
    """
    name = [uuid.uuid4().hex]
    dist.broadcast_object_list(name)
    path = run / f"seen-by-all-{name[0]}"
    if dist.get_rank() == 0:
        path.touch()
    try:
        dist.barrier()  # nobody looks before it is written
        blind: list[str | None] = [None] * dist.get_world_size()
        dist.all_gather_object(blind, None if _seen(path) else socket.gethostname())
    finally:
        if dist.get_rank() == 0:
            path.unlink()
    ranks = [rank for rank, host in enumerate(blind) if host]
    if ranks:
        raise SharedError(
            f"{run}: rank {ranks[0]}, on {blind[ranks[0]]}, sees another folder there than rank 0 "
            f"({len(ranks)} of {len(blind)} ranks do): put the run on a file system that all hosts share, at one path"
        )


def check_same(job: Job) -> None:
    """Raise SharedError if a rank trains with another recipe, other data or another precision than rank 0.

    A recipe may be edited while rank 0 opens the data, or lie on each host; `deepspeed: auto` depends on the device.
    """
    config = {"deepspeed's file": ds_config.load(job.recipe.deepspeed)[1]}
    settings = {**job.resume_invariants, **complete(job.recipe), **config}
    from_rank_0 = [settings]
    dist.broadcast_object_list(from_rank_0)
    lines = (f"{key}={now}, and rank 0 with {was}" for key, was, now in differences(from_rank_0[0], settings))
    different: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(different, next(lines, None))
    for rank, difference in enumerate(different):
        if difference:
            raise SharedError(
                f"rank {rank} would train with {difference}: give all ranks the same recipe, data and devices, and "
                "start again"
            )


def _seen(path: Path) -> bool:
    end = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
