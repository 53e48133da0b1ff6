"""The probe of a run: when it measures, what it reports, and the checkpoint of its best measurement.

The loop asks before a step, when its micro-batches are there, and after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.checkpoints.best import save_best
from deepsiam.trainer.training.checkpoints.checkpoint import SaveError, State
from deepsiam.trainer.training.data.order import LaneBatch
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import rank_0_speaks, warn
from deepsiam.trainer.training.recipe.best import Best
from deepsiam.trainer.training.recipe.schema import PairCheckpointConfig
from deepsiam.trainer.training.run.job import Job
from deepsiam.trainer.training.run.monitor import Monitor


class BestKeeper:
    """Run a job's probe, if it has one, and keep the weights of its best measurement."""

    def __init__(self, job: Job, engine: Engine):
        self.job, self.engine = job, engine
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
        probe, keys = self.job.probe, self.job.recipe.checkpoint
        if probe is None or not probe.is_due(step, self.job.recipe.steps):
            return False
        with monitor.untimed():
            with rank_0_speaks(self.engine.world.rank):
                try:
                    figures = probe.measure(self.engine, [batch.micro_batch for batch in batches], beat)
                except InputError as error:
                    raise InputError(
                        f"step {step}: the probe cannot measure the model, which may have diverged: {error}; resume "
                        "with a lower optimizer.lr"
                    ) from None
            monitor.probed(step, figures)
            if not isinstance(keys, PairCheckpointConfig) or not keys.keep_best:
                return False
            of = f"{keys.keep_best} of {probe.about}"
            is_extra = not probe.is_due(step, self.job.recipe.steps + 1)  # a longer run has none here
            best = self.best.after(step, figures[keys.keep_best], of, is_extra=is_extra)
            if best.step == step and best != self.best and not self._saves(monitor, step, state):
                return False
        self.best = best
        if keys.stop_after and best.bad >= keys.stop_after:
            self.ended = True
            monitor.info(
                f"stopped after step {step}: {best.bad} probes without a gain in {keys.keep_best}, which was "
                f"{best.value:.4f} at step {best.step}"
            )
        return self.ended

    def _saves(self, monitor: Monitor, step: int, state: Callable[[], State]) -> bool:
        """Save the weights as the best so far; return False if the disk refused: the next best is tried."""
        try:
            saved = save_best(self.job.recipe.run, self.engine, state(), self.job.sidecar_files)
        except SaveError as error:
            warn(f"step {step}: {error}; training on, with the best of before")
            return False
        monitor.info(f"step {step}  the best so far: saved {saved}")
        return True
