"""The loop: take the step's micro-batches, step the engine, say what happened, save. One for every kind of training."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from data_prep.errors import InputError
from trainer import checkpoint
from trainer.checkpoint import State
from trainer.engine import Engine, StepResult, World
from trainer.lanes import START, LaneBatch, LaneOrder, Position, dropout_seed
from trainer.loader import rank_micro_batches
from trainer.monitor import Monitor
from trainer.recipe import Recipe
from trainer.schedule import learning_rate


@dataclass(frozen=True)
class Job:
    """What there is to train: a model, the order of its examples, and what they depend on."""

    recipe: Recipe
    model: nn.Module
    order: LaneOrder
    workers: int
    weights: dict[str, float]  # of each loss term
    about: dict[str, bytes]  # small files kept with every checkpoint: recipe, tokenizer, trunk configuration
    fixed: dict[str, Any]  # what must not change when the run goes on


class Run:
    """A job under way: finished optimizer steps, and every lane's position after them."""

    def __init__(self, job: Job, world: World, resume_from: Path | None):
        self.job, self.recipe, self.world = job, job.recipe, world
        self.engine = Engine(job.model, job.recipe, job.weights, world)
        self.step, self.positions = 0, [START] * job.order.lanes
        if resume_from is not None:
            state = checkpoint.read_state(resume_from)
            checkpoint.resume(self.engine, resume_from)
            self.step, self.positions = state.step, list(state.positions)
        self.losses = torch.zeros(len(job.weights), device=self.engine.device)  # this rank's shares of the means,
        self.trained = 0  # summed over so many steps since the last line (fp16 overflow trains nothing)
        self.monitor = Monitor(
            self.recipe.run, rank=world.rank, ranks=world.size, start=self.step, steps=self.recipe.steps
        )

    def train(self) -> None:
        """Train to the recipe's last step."""
        stream = self._stream()
        while self.step < self.recipe.steps:
            began = time.monotonic()
            batches = [next(stream) for _ in range(self.engine.accumulation)]
            waited = time.monotonic() - began
            result = self._optimize(batches)
            for batch in batches:  # a position moves only when what lies before it has been trained on
                self.positions[batch.lane] = batch.after
            self.step += 1
            tokens = sum(batch.micro_batch.tokens for batch in batches)
            self.monitor.count(tokens=tokens, waited=waited, skipped=result.skipped)
            save = self.step % self.recipe.checkpoint.every == 0 or self.step == self.recipe.steps
            if save or self.step % self.recipe.log_every == 0:
                self._log(result)  # before a save, so that a loss that is not finite is never saved
            if save:
                self._save()
        self.monitor.close()

    def _stream(self) -> Iterator[LaneBatch]:
        first = self.step * self.recipe.batch.micro_batches
        order, world = self.job.order, self.world
        return rank_micro_batches(order, self.positions, first, world.rank, world.size, self.job.workers)

    def _optimize(self, batches: Sequence[LaneBatch]) -> StepResult:
        micro_batches = [batch.micro_batch for batch in batches]
        seeds = [dropout_seed(self.recipe.seed, batch.index) for batch in batches]
        lr = self._lr(self.step)
        if self.monitor.peak and self.monitor.flops_per_token is None:
            with FlopCounterMode(display=False) as counter:
                result = self.engine.step(micro_batches, seeds, lr)
            self.monitor.flops_per_token = counter.get_total_flops() / sum(m.tokens for m in micro_batches)
        else:
            result = self.engine.step(micro_batches, seeds, lr)
        if not result.skipped:
            self.losses += torch.stack([self.engine.losses[term] for term in self.job.weights])
            self.trained += 1
        return result

    def _lr(self, step: int) -> float:
        optimizer, steps = self.recipe.optimizer, self.recipe.steps
        return learning_rate(step, peak=optimizer.lr, warmup_steps=optimizer.warmup_steps, steps=steps)

    def _log(self, result: StepResult) -> None:
        """Means over the steps since the last line, the same on every rank."""
        means = (self.engine.sum_over_ranks(self.losses) / max(1, self.trained)).tolist()
        losses = dict(zip(self.job.weights, means, strict=True)) if self.trained else {}
        self.losses, self.trained = torch.zeros_like(self.losses), 0
        self.monitor.log(self.step, losses, self._lr(self.step - 1), result.grad_norm, result.loss_scale)
        for term, loss in losses.items():
            if not math.isfinite(loss):
                raise InputError(
                    f"step {self.step}: the {term} loss is {loss}: lower optimizer.lr or raise optimizer.warmup_steps; "
                    f"the checkpoints in {self.recipe.run} are from before and can be gone on from with --resume"
                )

    def _save(self) -> None:
        state = State(self.step, self._all_positions(), self.world.size, self.job.fixed)
        keep = self.recipe.checkpoint.keep
        path = checkpoint.save(self.recipe.run, self.engine, state, self.job.about, keep)
        if self.world.rank == 0:
            print(f"saved {path}", flush=True)

    def _all_positions(self) -> list[Position]:
        """Every lane's position: lane v is served by rank v mod the number of ranks."""
        world = self.world
        own = [p if lane % world.size == world.rank else (0, 0, 0) for lane, p in enumerate(self.positions)]
        return [Position(*position) for position in self.engine.sum_over_ranks(torch.tensor(own)).tolist()]
