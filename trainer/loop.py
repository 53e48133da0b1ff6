"""The loop: take the step's micro-batches, step the engine, say what happened, save. One for every kind of training."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.encoder import TrunkModel
from trainer import checkpoint
from trainer.cursor import Cursor
from trainer.engine import Engine, StepResult, World
from trainer.faults import STOP_FILE, SharedError, Stop, Watchdog
from trainer.keyed import dropout_seed
from trainer.loader import rank_micro_batches
from trainer.monitor import Monitor
from trainer.order import LaneBatch, Order
from trainer.probe import Probe, look
from trainer.recipe import Recipe
from trainer.sentinel import Sentinel
from trainer.validation import Validation


@dataclass(frozen=True)
class Job:
    """What there is to train: a model, the order of its examples, and what they depend on."""

    recipe: Recipe
    model: TrunkModel
    order: Order
    validation: Validation | None
    workers: int
    weights: dict[str, float]  # of each loss term
    about: dict[str, bytes]  # small files kept with every checkpoint: recipe, tokenizer, trunk configuration
    fixed: dict[str, Any]  # what must not change when the run goes on
    probe: Probe | None = None


class Run:
    """A job under way: finished optimizer steps, and where it stands in its data."""

    def __init__(self, job: Job, world: World, resume_from: Path | None):
        self.job, self.recipe, self.world = job, job.recipe, world
        state = checkpoint.read_state(resume_from) if resume_from else None
        self.engine = Engine(job.model, job.recipe, job.weights, world)
        self.step, self.cursor, self.saved = 0, Cursor(job.order.start()), resume_from
        if state is not None and resume_from is not None:
            checkpoint.resume(self.engine, resume_from, state.world_size)
            self.step, self.cursor = state.step, state.cursor
            job.order.skip(state.cursor.skips)
        self.sentinel = Sentinel(self.recipe, self.engine, job.order)
        self.monitor = Monitor(self.recipe, self.engine, job.order.names, self.step)

    def train(self) -> bool:
        """Train to the recipe's last step; False where the run was told to stop before that, and has saved."""
        stop_file = self.recipe.run / STOP_FILE if self.world.rank == 0 else None
        watchdog = Watchdog(self.recipe.faults.hang_seconds, self.world.rank)
        with Stop(stop_file) as stop, watchdog as self.watchdog, closing(self.monitor):
            stream = self._stream()
            while self.step < self.recipe.steps:
                began = time.monotonic()
                batches = [next(stream) for _ in range(self.engine.accumulation)]
                waited = time.monotonic() - began
                targets, stopping = self._agree(batches, stop)
                if stopping:
                    self._save(must=True)
                    self.monitor.say(f"told to stop after step {self.step}: the same command with --resume goes on")
                    break
                with self.monitor.untimed():
                    look(self.job.probe, self.step, self.engine, batches, self.monitor, self.watchdog.beat)
                result = self._optimize(batches, targets)
                self.cursor.advance(batches, self.recipe.batch.micro_batches)
                if not self.sentinel.sound(self.step + 1, batches, result):
                    self._roll_back()
                    stream = self._stream()
                    continue
                self.step += 1
                self.monitor.count(batches, result, waited)
                self._report_and_save(result)
                self.watchdog.beat()
        return self.step == self.recipe.steps

    def _stream(self) -> Iterator[LaneBatch]:
        order, cursor, world = self.job.order, self.cursor, self.world
        return rank_micro_batches(
            order, cursor.positions, cursor.micro_batches, world.rank, world.size, self.job.workers
        )

    def _agree(self, batches: Sequence[LaneBatch], stop: Stop) -> tuple[dict[str, int], bool]:
        """What the ranks tell one another before a step: the targets of every loss term, and whether to stop."""
        counts = [sum(batch.micro_batch.counts[term] for batch in batches) for term in self.job.weights]
        skips = [skip for batch in batches for skip in batch.skips]
        said = torch.tensor([*counts, stop.asked, len(skips)], dtype=torch.int64)
        *targets, stopping, skipped = self.engine.sum_over_ranks(said).tolist()
        if skipped:
            met = [skip for some in self.engine.gather(skips) for skip in some]
            self.cursor.skips.update(met)
            self.sentinel.bad_shards(self.cursor, met)
        return dict(zip(self.job.weights, targets, strict=True)), bool(stopping)

    def _optimize(self, batches: Sequence[LaneBatch], targets: dict[str, int]) -> StepResult:
        micro_batches = [batch.micro_batch for batch in batches]
        seeds = [dropout_seed(self.recipe.seed, batch.index) for batch in batches]
        with self.monitor.counting_flops(micro_batches):
            return self.engine.step(micro_batches, targets, seeds, self._lr(self.step))

    def _lr(self, step: int) -> float:
        return self.recipe.optimizer.rate(step, self.recipe.steps)

    def _report_and_save(self, result: StepResult) -> None:
        save, validation = self._due(self.recipe.checkpoint.every), self.job.validation
        if save or self.step % self.recipe.log_every == 0:
            self.monitor.log(self.step, self._lr(self.step - 1), result)
        with self.monitor.untimed():
            if validation is not None and self._due(validation.every):
                self.monitor.validated(self.step, validation.losses(self.engine, self.watchdog.beat))
            if save:
                self._save(must=self.step == self.recipe.steps)

    def _due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.recipe.steps

    def _save(self, *, must: bool) -> None:
        """Save; where that cannot be done, say so and go on, unless it `must` be."""
        cursor = Cursor.merged(self.engine.gather(self.cursor))
        state = checkpoint.State(self.step, cursor, self.world.size, self.job.fixed)
        try:
            self.saved = checkpoint.save(self.recipe.run, self.engine, state, self.job.about, self.recipe.checkpoint)
            self.sentinel.rollbacks = 0
            self.monitor.say(f"saved {self.saved}")
        except checkpoint.SaveError as error:
            if must:
                raise
            self.monitor.warn(f"step {self.step}: {error}; going on, to try again at the next save")

    def _roll_back(self) -> None:
        """Back to the last checkpoint, and on with the data after the step that went wrong."""
        if self.saved is None:
            raise SharedError(f"{self.recipe.run} has no checkpoint yet to go back to: start it anew with another seed")
        state = checkpoint.read_state(self.saved)
        checkpoint.resume(self.engine, self.saved, state.world_size)
        self.monitor.warn(f"going back to {self.saved.name}, and on after the data of the steps since")
        self.step = state.step
        self.monitor.restart(self.step)
