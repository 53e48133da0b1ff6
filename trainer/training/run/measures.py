"""What a run measures besides the losses of its steps: losses on held-out data, and the probe.

The loop calls `held_out_losses` after a step, when a validation is due; a loss that no longer falls lowers the learning
rate. It calls `BestKeeper` before a step, when its micro-batches are there, and after the last one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.checkpoints.checkpoint import SaveError, State, save_best
from deepsiam.trainer.training.data.opened import HeldOut
from deepsiam.trainer.training.data.order import LaneBatch
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import rank_0_speaks, warn
from deepsiam.trainer.training.recipe.gains import Best, Plateau
from deepsiam.trainer.training.recipe.schema import PairCheckpointConfig, Recipe
from deepsiam.trainer.training.run.monitor import Monitor

EMA = "ema/"  # before the names of what the moving average of the weights is measured by


class LearningRate:
    """The learning rate of a recipe's schedule, lowered at the plateaus of the validations so far."""

    def __init__(self, recipe: Recipe):
        self.recipe, self.plateau = recipe, Plateau()
        if recipe.optimizer.warmup_steps > recipe.steps:  # also of a run that only tries a recipe, with few steps
            warn(
                f"optimizer.warmup_steps={recipe.optimizer.warmup_steps} is more than steps={recipe.steps}: the "
                "learning rate never reaches optimizer.lr"
            )

    def at(self, step: int) -> float:
        """Return the rate of a step, counted from 0."""
        optimizer = self.recipe.optimizer
        rate = optimizer.rate(step, self.recipe.steps)
        return rate * self.plateau.scale if optimizer.plateau else rate

    def validated(self, losses: Mapping[str, float]) -> bool:
        """Record the losses on held-out data, 0 without a target; return whether they lower the rate."""
        keys, plateau = self.recipe.optimizer.plateau, self.plateau
        if keys:
            total = sum(weight * losses.get(term, 0.0) for term, weight in self.recipe.method.weights.items())
            self.plateau = plateau.after(total, **keys.model_dump())
        return self.plateau.scale != plateau.scale


def held_out_losses(held_out: Sequence[HeldOut], engine: Engine, beat: Callable[[], None]) -> dict[str, float]:
    """Return the mean of every loss term that has targets, for several sources also `term/source`; all ranks call.

    `beat` is called after each micro-batch. The sums are exact (math.fsum), so they do not depend on the number of
    ranks.
    """
    sums_by_source = {part.name: _sums(part, engine, beat) for part in held_out}
    all_rows = [row for rows, _ in sums_by_source.values() for row in rows]
    all_counts = torch.stack([counts for _, counts in sums_by_source.values()]).sum(dim=0)
    rows_by_name = {"": (all_rows, all_counts), **(sums_by_source if len(sums_by_source) > 1 else {})}
    return {
        f"{term}/{name}" if name else term: math.fsum(row[i] for row in rows) / int(counts[i])
        for name, (rows, counts) in rows_by_name.items()
        for i, term in enumerate(engine.terms)
        if counts[i]
    }


def _sums(held_out: HeldOut, engine: Engine, beat: Callable[[], None]) -> tuple[list[list[float]], torch.Tensor]:
    """Return the summed losses of all micro-batches of all ranks, and the number of each term's targets."""
    sums: list[list[float]] = []
    counts = torch.zeros(len(engine.terms), dtype=torch.int64)
    # a rank with no micro-batches left repeats the first one, uncounted, until all ranks have finished: under ZeRO-3 a
    # forward pass gathers each layer's weights from every rank
    filler = held_out.first()
    rank_batches = held_out.micro_batches(engine.world.rank, engine.world.size)
    while True:
        batch = next(rank_batches, None)
        if not engine.sum_over_ranks(torch.tensor([batch is not None])).item():
            break
        losses = engine.evaluate(batch or filler, held_out.number)
        if batch is not None:
            sums.append(losses.tolist())
            counts += torch.tensor([batch.counts.get(term, 0) for term in engine.terms])
        beat()
    return [row for rank_sums in engine.gather(sums) for row in rank_sums], engine.sum_over_ranks(counts)


class Probe(Protocol):
    """Measures the model during the run, as the probes of `trainer.ranking.while_training` do."""

    @property
    def about(self) -> str:
        """What is measured on what; measurements of the same can be compared."""

    def is_due(self, step: int, steps: int) -> bool:
        """Return whether to measure after `step` of `steps` optimizer steps."""

    def measure(
        self, engine: Engine, micro_batches: Sequence[MicroBatch], beat: Callable[[], None]
    ) -> dict[str, float]:
        """Measure the current model; all ranks call."""


class BestKeeper:
    """Run the probe, if there is one, and keep the weights of its best measurement, with the `sidecar_files`."""

    def __init__(self, probe: Probe | None, recipe: Recipe, engine: Engine, sidecar_files: Mapping[str, bytes]):
        self.probe, self.recipe, self.engine, self.sidecar_files = probe, recipe, engine, sidecar_files
        self.best = Best()
        self.ended = False  # the run, before its last step

    def measure(
        self,
        step: int,
        batches: Sequence[LaneBatch],
        monitor: Monitor,
        beat: Callable[[], None],
        state: Callable[[], State],
    ) -> bool:
        """Run the probe, if due after `step` steps, before the model is trained on `batches`; all ranks call.

        Keep the model's weights if they are the best so far, with the run's `state`. Return whether the run is to end,
        because too many probes had no gain.
        """
        probe, keys, steps = self.probe, self.recipe.checkpoint, self.recipe.steps
        if probe is None or not probe.is_due(step, steps):
            return False
        with monitor.untimed():
            figures = self._figures(probe, step, [batch.micro_batch for batch in batches], beat)
            monitor.probed(step, figures)
            if not isinstance(keys, PairCheckpointConfig) or not keys.keep_best:
                return False
            measure = f"{keys.keep_best} of {probe.about}"
            is_extra = not probe.is_due(step, steps + 1)  # a longer run has none here
            value, average = figures[keys.keep_best], figures.get(EMA + keys.keep_best, -math.inf)
            best_probe = self.best.after(step, max(value, average), measure, is_extra=is_extra)
            is_best = best_probe.step == step and best_probe != self.best
            if is_best and not self._saves(monitor, step, state, averaged=average > value):
                return False
        self.best = best_probe
        if keys.stop_after and best_probe.bad >= keys.stop_after:
            self.ended = True
            monitor.info(
                f"stopped after step {step}: {best_probe.bad} probes without a gain in {keys.keep_best}, which was "
                f"{best_probe.value:.4f} at step {best_probe.step}"
            )
        return self.ended

    def _figures(
        self, probe: Probe, step: int, micro_batches: Sequence[MicroBatch], beat: Callable[[], None]
    ) -> dict[str, float]:
        """Measure the model and, if there is one, the moving average of its weights; all ranks call."""
        engine = self.engine
        with rank_0_speaks(engine.world.rank):
            try:
                figures = probe.measure(engine, micro_batches, beat)
                if engine.average and engine.updates:
                    with engine.averaged():
                        averaged = probe.measure(engine, micro_batches, beat)
                    figures |= {EMA + name: value for name, value in averaged.items()}
            except InputError as error:
                raise InputError(
                    f"step {step}: the probe cannot measure the model, which may have diverged: {error}; resume "
                    "with a lower optimizer.lr"
                ) from None
        return figures

    def _saves(self, monitor: Monitor, step: int, state: Callable[[], State], *, averaged: bool) -> bool:
        """Save the weights, or their average, as the best so far; return False if the disk refused.

        The next best is then tried.
        """
        try:
            with self.engine.averaged() if averaged else nullcontext():
                saved = save_best(self.recipe.run, self.engine, state(), self.sidecar_files)
        except SaveError as error:
            warn(f"step {step}: {error}; training on, with the best of before")
            return False
        monitor.info(f"step {step}  the best so far{', of the moving average' * averaged}: saved {saved}")
        return True
