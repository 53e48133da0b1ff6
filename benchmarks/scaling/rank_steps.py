"""Optimizer steps of one rank among others, timed together: shared by the benchmarks that run several ranks."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist

from benchmarks.common.collectives import replace_collectives
from benchmarks.common.step_cases import recipe_of, workload_of
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World


class RankSteps:
    """The steps of a case of benchmarks.common.step_cases; each rank has its own micro-batches."""

    def __init__(self, case: str, changes: Sequence[str], micro: int, accumulation: int, world: World) -> None:
        """Build the engine, for `accumulation` micro-batches of `micro` examples per rank and step."""
        size = micro * accumulation * world.size
        recipe = recipe_of(case, gpu=False, changes=[*changes, f"batch.micro={micro}", f"batch.size={size}"])
        workload = workload_of(recipe)
        model = workload.model()
        self.sizes = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
        self.engine = Engine(model, recipe, world)
        self.all, self.own = workload.steps[0], slice(accumulation * world.rank, accumulation * (world.rank + 1))

    def take(self) -> None:
        """Take a step, always on the same micro-batches."""
        batches = self.all.micro_batches[self.own]
        objectives = [self.all.objective(self.engine.methods)] * len(batches)
        self.engine.step(batches, objectives, self.all.seeds[self.own], lr=1e-4)


class Done:
    """The result of a collective call that was skipped."""

    def wait(self) -> None:
        """Do not wait: there is nothing to wait for."""

    def is_completed(self) -> bool:
        """Return True."""
        return True


def without_exchange() -> AbstractContextManager[None]:
    """Let DeepSpeed compute without exchanging anything: the weights become useless."""
    return replace_collectives(lambda _: lambda *_, **__: Done())


def timed(function: Callable[[], object]) -> float:
    """Return the slowest rank's seconds of a function that all ranks call."""
    dist.barrier()
    start = time.perf_counter()
    function()
    seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return float(seconds)


def end() -> None:
    """End this rank once all have called this; a live process-group thread may abort the interpreter's shutdown."""
    dist.barrier()
    os._exit(0)
