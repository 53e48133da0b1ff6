"""The loop, which command.py starts for every kind of run: each turn takes micro-batches, steps, reports and saves."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.loader import Loader
from deepsiam.trainer.training.data.order import LaneBatch, dropout_seed
from deepsiam.trainer.training.engine.engine import Engine, StepResult
from deepsiam.trainer.training.engine.world import World, warn
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.objective import objectives
from deepsiam.trainer.training.run.agree import Agreed, agree, exchange
from deepsiam.trainer.training.run.health import Health
from deepsiam.trainer.training.run.job import Job
from deepsiam.trainer.training.run.measures import BestKeeper, LearningRate, held_out_losses
from deepsiam.trainer.training.run.monitor import Monitor
from deepsiam.trainer.training.run.stop import STOP_FILE, Stop
from deepsiam.trainer.training.run.watchdog import Watchdog


class Run:
    """A job under way: its finished optimizer steps, and its position in the data."""

    def __init__(self, job: Job, world: World, resume_from: Path | None):
        self.job, self.recipe, self.world = job, job.recipe, world
        self.engine = Engine(job.model, job.recipe, world)
        self.step, self.saved = 0, resume_from
        self.cursor = Cursor(job.order.start(), micro_sizes={0: self.recipe.batch.micro})
        self.rate = LearningRate(job.recipe)
        self.best_keeper = BestKeeper(job.probe, job.recipe, self.engine, job.sidecar_files)
        if resume_from is not None:
            state = self._load(resume_from)
            self.cursor, self.best_keeper.best = state.cursor.with_micro(self.recipe.batch.micro, self.step), state.best
        self.loader = Loader(job.order, world.rank, world.size, self.recipe.data.workers)
        self.health = Health(self.recipe, self.engine, job.order)
        self.monitor = Monitor(self.recipe, self.engine, job.order.names, self.step)
        self.monitor.generation = 0 if job.refresh else None
        self.watchdog = Watchdog(self.recipe.faults.hang_seconds, world.rank)
        self.stop = Stop(self.recipe.run / STOP_FILE if world.rank == 0 else None)

    def train(self) -> bool:
        """Train to the recipe's last step; return False if a stop was requested earlier; the run is then saved."""
        with self.stop, self.watchdog, self.monitor:
            stream: Iterator[LaneBatch] | None = None
            while self.step < self.recipe.steps:
                if self._refresh() or stream is None:  # what workers have read ahead has the old negatives
                    stream = self.loader.micro_batches(self.cursor)
                with self.monitor.waiting():
                    batches = list(islice(stream, self.engine.accumulation))
                agreed = agree(self.engine, self.health, self.cursor, batches, self.stop.requested)
                if not agreed.sound:
                    stream = self._roll_back()
                    continue
                if agreed.stop:
                    self._save_here()
                    self.monitor.info(f"stopped on request after step {self.step}: add --resume to continue")
                    break
                if self._probe(batches):  # on texts that the model has not been trained on yet
                    self._save(must_succeed=True)  # a checkpoint of this step lacks what the probe found
                    break
                result = self._optimize(batches, agreed)
                # before the step is judged: a rollback goes on behind its data, or it would fail at them again
                self.cursor.advance(batches, self.recipe.batch.micro_batches)
                self.step += 1
                self.health.expect(self.step, batches, result)
                self.monitor.count(batches, result)
                # what is measured or saved now must be sound: judge the step at once, not with the next one
                if self._pauses() and not self.health.judge(*exchange(self.engine, self.health)):
                    stream = self._roll_back()
                    continue
                self._report_and_save(batches, result)
                self.watchdog.beat()
        return self.best_keeper.ended or self.step == self.recipe.steps

    def _refresh(self) -> bool:
        """Use the negatives that belong to this step, mining them if due; return whether they have changed."""
        refresh = self.job.refresh
        if refresh is None or refresh.current_step == refresh.step_of(self.step):
            return False
        with self.monitor.untimed():
            if refresh.is_due(self.step):
                self.monitor.refreshed(self.step, refresh.make(self.step, self._save_here(), self.watchdog.beat))
            refresh.use(self.step)
            self.monitor.generation = refresh.current_step
        return True

    def _probe(self, batches: Sequence[LaneBatch]) -> bool:
        return self.best_keeper.measure(self.step, batches, self.monitor, self.watchdog.beat, self._state)

    def _optimize(self, batches: Sequence[LaneBatch], agreed: Agreed) -> StepResult:
        micro_batches = [batch.micro_batch for batch in batches]
        seeds = [dropout_seed(self.recipe.seed, batch.index) for batch in batches]
        by_source = objectives(self.engine.methods, self.step, agreed.micro_batches, agreed.targets)
        with self.monitor.counting_flops(batches):
            of_batches = [by_source[batch.source] for batch in batches]
            return self.engine.step(micro_batches, of_batches, seeds, self.rate.at(self.step))

    def _pauses(self) -> bool:
        """Whether more than training is due after this step: a progress line, a validation, a save, new negatives."""
        validation, refresh = self.recipe.validation, self.job.refresh
        return (
            self._reports()
            or (validation is not None and self._is_due(validation.every))
            or (refresh is not None and refresh.is_due(self.step))
        )

    def _reports(self) -> bool:
        return self._is_due(self.recipe.checkpoint.every) or self.step % self.recipe.log_every == 0

    def _report_and_save(self, batches: Sequence[LaneBatch], result: StepResult) -> None:
        if self._reports():
            progress = self.job.order.progress(self.cursor.micro_batches)
            self.monitor.log(self.step, self.rate.at(self.step - 1), result, progress)
            with self.monitor.untimed():
                self.health.compare_vectors(self.step, batches)
        if self.step == self.recipe.steps:
            self._probe(())
        with self.monitor.untimed():
            if (keys := self.recipe.validation) and self._is_due(keys.every):
                self._validate(keys.every)
            if self._is_due(self.recipe.checkpoint.every):
                self._save(must_succeed=self.step == self.recipe.steps)

    def _validate(self, every: int) -> None:
        """Measure the losses on held-out data; if they no longer fall, lower the learning rate."""
        losses = held_out_losses(self.job.data.held_out, self.engine, self.watchdog.beat)
        self.monitor.validated(self.step, losses)
        # a longer run has no validation at this one's last step
        if self.step % every == 0 and self.rate.validated(losses):
            self.monitor.info(f"step {self.step}  plateau  the learning rate is now x {self.rate.plateau.scale:.3g}")

    def _is_due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.recipe.steps

    def _save(self, *, must_succeed: bool) -> None:
        """Save a checkpoint; if that fails and need not succeed, warn and continue training."""
        files, policy = self.job.sidecar_files, self.recipe.checkpoint
        try:
            self.saved = checkpoint.save(self.recipe.run, self.engine, self._state(), files, policy)
            self.health.rollbacks = 0
            self.monitor.info(f"saved {self.saved}")
        except checkpoint.SaveError as error:
            if must_succeed:
                raise
            warn(f"step {self.step}: {error}; training on, to try again at the next save")

    def _save_here(self) -> Path:
        """Save, unless there is a checkpoint of this step; return the checkpoint."""
        if self.saved is None or checkpoint.step_of(self.saved) != self.step:
            self._save(must_succeed=True)
        assert self.saved is not None
        return self.saved

    def _state(self) -> checkpoint.State:
        cursor, invariants = Cursor.merged(self.engine.gather(self.cursor)), self.job.resume_invariants
        plateau, best_probe = self.rate.plateau, self.best_keeper.best
        return checkpoint.State(self.step, cursor, self.world.size, invariants, plateau, best_probe)

    def _load(self, path: Path) -> checkpoint.State:
        """Load a checkpoint into the engine; take over its step and plateau. Data and the best probe stay."""
        state = checkpoint.read_state(path)
        checkpoint.resume(self.engine, path, state.world_size)
        self.step, self.rate.plateau = state.step, state.plateau
        return state

    def _roll_back(self) -> Iterator[LaneBatch]:
        """Load the last checkpoint; return the micro-batches after the bad step."""
        if self.saved is None:
            raise SharedError(f"{self.recipe.run} has no checkpoint yet to go back to: start again with another seed")
        self._load(self.saved)
        warn(f"going back to {self.saved.name}; the data of the steps since is not used again")
        self.monitor.restart(self.step)
        return self.loader.micro_batches(self.cursor)
