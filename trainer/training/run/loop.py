"""The training loop, the same for every kind of run: take micro-batches, step the engine, report, save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from trainer.training.checkpoints import checkpoint
from trainer.training.data.cursor import Cursor
from trainer.training.data.loader import Loader
from trainer.training.data.order import LaneBatch
from trainer.training.data.rng import dropout_seed
from trainer.training.engine.engine import Engine, StepResult
from trainer.training.engine.world import World
from trainer.training.errors import SharedError
from trainer.training.recipe.plateau import Plateau
from trainer.training.run.agree import agree, exchange
from trainer.training.run.health import Health
from trainer.training.run.job import Job
from trainer.training.run.monitor import Monitor
from trainer.training.run.stop import STOP_FILE, Stop
from trainer.training.run.validation import Validation
from trainer.training.run.watchdog import Watchdog


class Run:
    """A job under way: its finished optimizer steps, and its position in the data."""

    def __init__(self, job: Job, world: World, resume_from: Path | None):
        self.job, self.recipe, self.world = job, job.recipe, world
        self.engine = Engine(job.model, job.recipe, world)
        self.step, self.saved = 0, resume_from
        self.cursor = Cursor(job.order.start(), micro_sizes={0: self.recipe.batch.micro})
        self.plateau = Plateau()
        if resume_from is not None:
            self.cursor = self._load(resume_from).cursor.with_micro(self.recipe.batch.micro, self.step)
            job.order.skip(self.cursor.skips)
        self.loader = Loader(job.order, world.rank, world.size, self.recipe.data.workers)
        self.health = Health(self.recipe, self.engine, job.order)
        self.monitor = Monitor(self.recipe, self.engine, job.order.names, self.step)
        self.monitor.generation = 0 if job.refresh else None
        self.watchdog = Watchdog(self.recipe.faults.hang_seconds, world.rank)
        self.stop = Stop(self.recipe.run / STOP_FILE if world.rank == 0 else None)

    def train(self) -> bool:
        """Train to the recipe's last step; return False if a stop was requested earlier; the run is then saved."""
        with self.stop, self.watchdog, closing(self.monitor):
            stream: Iterator[LaneBatch] | None = None
            while self.step < self.recipe.steps:
                if self._refresh() or stream is None:
                    stream = self.loader.micro_batches(self.cursor)
                with self.monitor.waiting():
                    batches = list(islice(stream, self.engine.accumulation))
                agreed = agree(self.engine, self.health, self.cursor, batches, self.stop.requested)
                if not agreed.sound:
                    stream = self._roll_back()
                    continue
                if agreed.stop:
                    self._save(must_succeed=True)
                    self.monitor.info(f"stopped on request after step {self.step}: add --resume to continue")
                    break
                self._probe(batches)
                result = self._optimize(batches, agreed.targets)
                self.cursor.advance(batches, self.recipe.batch.micro_batches)
                self.step += 1
                self.health.expect(self.step, batches, result)
                self.monitor.count(batches, result)
                if self._pauses() and not self.health.is_sound(*exchange(self.engine, self.health)):
                    stream = self._roll_back()
                    continue
                self._report_and_save(batches, result)
                self.watchdog.beat()
        return self.step == self.recipe.steps

    def _refresh(self) -> bool:
        """Use the negatives that belong to this step, mining them if due; return whether they have changed."""
        refresh = self.job.refresh
        if refresh is None or refresh.current == refresh.step_of(self.step):
            return False
        with self.monitor.untimed():
            if refresh.is_due(self.step):
                if self.saved is None or checkpoint.step_of(self.saved) != self.step:
                    self._save(must_succeed=True)
                assert self.saved is not None
                self.monitor.refreshed(self.step, refresh.make(self.step, self.saved, self.watchdog.beat))
            refresh.use(self.step)
            self.monitor.generation = refresh.current
        return True

    def _probe(self, batches: Sequence[LaneBatch]) -> None:
        """Run the probe, if due, before the model is trained on `batches`."""
        probe = self.job.probe
        if probe is not None and self.step % probe.every == 0:
            with self.monitor.untimed():
                micro_batches = [batch.micro_batch for batch in batches]
                self.monitor.probed(self.step, probe.measure(self.engine, micro_batches, self.watchdog.beat))

    def _optimize(self, batches: Sequence[LaneBatch], targets: dict[str, int]) -> StepResult:
        micro_batches = [batch.micro_batch for batch in batches]
        seeds = [dropout_seed(self.recipe.seed, batch.index) for batch in batches]
        weights = self.recipe.method.weights_at(self.step)
        with self.monitor.counting_flops(micro_batches):
            return self.engine.step(micro_batches, targets, seeds, self._learning_rate(self.step), weights)

    def _learning_rate(self, step: int) -> float:
        rate = self.recipe.optimizer.rate(step, self.recipe.steps)
        return rate * self.plateau.scale if self.recipe.optimizer.plateau else rate

    def _pauses(self) -> bool:
        """Whether more than training is due after this step: a progress line, a validation, a save, new negatives."""
        validation, refresh = self.job.validation, self.job.refresh
        return (
            self._reports()
            or (validation is not None and self._is_due(validation.every))
            or (refresh is not None and refresh.is_due(self.step))
        )

    def _reports(self) -> bool:
        """Whether a progress line is due: also before every save."""
        return self._is_due(self.recipe.checkpoint.every) or self.step % self.recipe.log_every == 0

    def _report_and_save(self, batches: Sequence[LaneBatch], result: StepResult) -> None:
        validation = self.job.validation
        if self._reports():
            self.monitor.log(self.step, self._learning_rate(self.step - 1), result)
            with self.monitor.untimed():
                self.health.compare_vectors(self.step, batches)
        with self.monitor.untimed():
            if validation is not None and self._is_due(validation.every):
                self._validate(validation)
            if self._is_due(self.recipe.checkpoint.every):
                self._save(must_succeed=self.step == self.recipe.steps)

    def _validate(self, validation: Validation) -> None:
        """Measure the losses on held-out data; if they no longer fall, lower the learning rate of the next steps."""
        losses = validation.losses(self.engine, self.watchdog.beat)
        self.monitor.validated(self.step, losses)
        keys = self.recipe.optimizer.plateau
        if keys and self.step % validation.every == 0:  # a longer run has no validation at this one's last step
            total = sum(weight * losses[term] for term, weight in self.engine.weights.items())
            before, self.plateau = self.plateau, self.plateau.after(total, **keys.model_dump())
            if self.plateau.scale != before.scale:
                self.monitor.info(f"step {self.step}  plateau  the learning rate is now x {self.plateau.scale:.3g}")

    def _is_due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.recipe.steps

    def _save(self, *, must_succeed: bool) -> None:
        """Save a checkpoint; if that fails and need not succeed, warn and continue training."""
        cursor = Cursor.merged(self.engine.gather(self.cursor))
        state = checkpoint.State(self.step, cursor, self.world.size, self.job.resume_invariants, self.plateau)
        try:
            self.saved = checkpoint.save(
                self.recipe.run, self.engine, state, self.job.sidecar_files, self.recipe.checkpoint
            )
            self.health.rollbacks = 0
            self.monitor.info(f"saved {self.saved}")
        except checkpoint.SaveError as error:
            if must_succeed:
                raise
            self.monitor.warn(f"step {self.step}: {error}; training on, to try again at the next save")

    def _load(self, path: Path) -> checkpoint.State:
        """Load a checkpoint into the engine and take over its step and plateau; the cursor is not changed."""
        state = checkpoint.read_state(path)
        checkpoint.resume(self.engine, path, state.world_size)
        self.step, self.plateau = state.step, state.plateau
        return state

    def _roll_back(self) -> Iterator[LaneBatch]:
        """Load the last checkpoint; return the micro-batches after the bad step."""
        if self.saved is None:
            raise SharedError(f"{self.recipe.run} has no checkpoint yet to go back to: start again with another seed")
        self._load(self.saved)
        self.monitor.warn(f"going back to {self.saved.name}; the data of the steps since is not used again")
        self.monitor.restart(self.step)
        return self.loader.micro_batches(self.cursor)
