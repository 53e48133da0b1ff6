"""The training rivals of benchmarks.matching: this project's loop, and scripts of sentence-transformers' users.

Each takes the same optimizer steps, and is measured in its own process. A step's time includes everything that recurs:
turning texts into batches, forward, backward, clipping, AdamW.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import islice

import torch

from benchmarks.common import machine
from benchmarks.common.made_up_pairs import PairSizes
from benchmarks.common.training import join_alone
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.loader import Loader
from deepsiam.trainer.training.data.order import dropout_seed
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.objective import Objective
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe


class TrainingRival:
    """A way to train. `losses` are the losses of the last turn's steps, means over their pairs."""

    losses: list[float]

    def __init__(self, sizes: PairSizes) -> None:
        self.steps = sizes.steps

    def turn(self) -> float:
        """Take the benchmark's steps, the same in every turn; return the seconds of one step."""
        machine.synchronize()
        start = time.perf_counter()
        self.train()
        machine.synchronize()
        return (time.perf_counter() - start) / self.steps

    def train(self) -> None:
        """Take the steps."""
        raise NotImplementedError


class OurTraining(TrainingRival):
    """The parts of a `trainer.finetune` run: its job, loader and engine, used as in trainer.training.run.loop."""

    def __init__(self, sizes: PairSizes, recipe: FinetuneRecipe) -> None:
        super().__init__(sizes)
        join_alone()
        self.world = World.from_environment()
        self.job = finetuning.build(recipe)
        self.engine = Engine(self.job.model, self.job.recipe, self.world)
        self.loader = Loader(self.job.order, self.world.rank, self.world.size, recipe.data.workers)

    def train(self) -> None:
        """Take the first steps of the run's data."""
        stream = self.loader.micro_batches(Cursor(self.job.order.start()))
        recipe, self.losses = self.job.recipe, []
        for _ in range(self.steps):
            batches = list(islice(stream, self.engine.accumulation))
            micro_batches = [batch.micro_batch for batch in batches]
            targets = {term: sum(batch.counts[term] for batch in micro_batches) for term in self.engine.terms}
            objectives = [Objective(recipe.method, recipe.method.weights, targets)] * len(batches)
            seeds = [dropout_seed(recipe.seed, batch.index) for batch in batches]
            result = self.engine.step(micro_batches, objectives, seeds, recipe.optimizer.lr)
            self.losses.append(float(result.losses.sum()) / recipe.batch.size)


class Elsewhere:
    """A rival in its own process, which waits for its turns; forked from a server that has imported all modules.

    Its memory is the growth of the process since it was forked; on a GPU, the most that it has allocated.
    """

    def __init__(self, make: Callable[..., TrainingRival], sizes: PairSizes, recipe: FinetuneRecipe) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.matching.library" if has_library() else __name__])
        self.process = ProcessPoolExecutor(1, context)
        self.process.submit(_build, make, sizes, recipe).result()

    def turn(self) -> float:
        """Let the rival take its steps; return the seconds of one step."""
        return self.process.submit(_turn).result()

    def losses(self) -> list[float]:
        """Return the losses of the last turn's steps."""
        return self.process.submit(_losses).result()

    def memory(self) -> int:
        """Return the peak memory so far, in bytes."""
        return self.process.submit(_memory).result()

    def close(self) -> None:
        """End the process."""
        self.process.shutdown()


def has_library() -> bool:
    """Return whether sentence-transformers is installed."""
    return find_spec("sentence_transformers") is not None


_here: TrainingRival  # in the process of an `Elsewhere`
_before: int


def _build(make: Callable[..., TrainingRival], sizes: PairSizes, recipe: FinetuneRecipe) -> None:
    global _here, _before
    _before = _highest()
    _here = make(sizes, recipe)


def _turn() -> float:
    return _here.turn()


def _losses() -> list[float]:
    return _here.losses


def _memory() -> int:
    return _highest() - _before


def _highest() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else machine.highest_resident()
