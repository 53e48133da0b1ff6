"""Report on a run while it trains: TensorBoard events and progress lines, from rank 0.

The loop counts every step here, and asks for a line when one is due, after the step and before the save.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.tensorboard import SummaryWriter

from deepsiam.trainer.training.data.order import LaneBatch
from deepsiam.trainer.training.engine.engine import Engine, StepResult
from deepsiam.trainer.training.engine.hardware import peak_of
from deepsiam.trainer.training.engine.world import warn
from deepsiam.trainer.training.recipe.schema import Recipe
from deepsiam.trainer.training.run.events import WandbEvents, open_events, scalars_at
from deepsiam.trainer.training.run.stragglers import Stragglers


class Interval:
    """What this rank has counted since the last progress line."""

    def __init__(self, sources: int, terms: int, device: torch.device):
        self.steps = self.tokens = self.skipped = 0
        self.slots = self.filled = 0  # slots for tokens, padding included; slots that are not padding
        self.waited = 0.0  # seconds that the steps waited for data
        self.losses = torch.zeros(sources, terms, dtype=torch.float64, device=device)  # sums
        self.counts = torch.zeros(sources, terms, dtype=torch.float64)  # of targets


class Monitor:
    """Count on every rank, report from rank 0.

    Tokens/s are those of rank 0's micro-batches times the number of ranks; if the device's peak is known, model FLOP
    utilisation is computed from them.
    """

    def __init__(self, recipe: Recipe, engine: Engine, sources: Sequence[str], start: int):
        self.recipe, self.engine, self.sources = recipe, engine, sources
        self.terms = engine.terms
        self.skipped = 0
        self.remarks: dict[str, str] = {}  # the method's, on the losses of the last progress line
        name = torch.cuda.get_device_name() if engine.device.type == "cuda" else ""
        self.peak = peak_of(name)
        self.flops_per_token: float | None = None
        self.stragglers = Stragglers(engine) if engine.world.size > 1 else None
        self.generation: int | None = None  # the step at which the negatives were mined; 0: the groups' own negatives
        self.writer: SummaryWriter | None = None
        self.wandb = WandbEvents(recipe) if recipe.wandb and engine.world.rank == 0 else None
        self.restart(start)

    def restart(self, start: int) -> None:
        """Resume counting at a step; discard later events."""
        self._close_writer()
        if self.engine.world.rank == 0:
            with self._or_without_events():
                self.writer = open_events(self.recipe.run / "tensorboard", start + 1)
        self.start = start
        self.began = self.since = time.monotonic()
        self.interval = self._new_interval()

    def count(self, batches: Sequence[LaneBatch], result: StepResult) -> None:
        """Count one optimizer step of this rank."""
        interval = self.interval
        interval.steps += 1
        interval.skipped += result.skipped
        for batch, losses in zip(batches, result.losses, strict=True):
            interval.tokens += batch.micro_batch.tokens
            interval.slots += batch.micro_batch.slots
            interval.filled += batch.micro_batch.filled
            interval.losses[batch.source] += losses  # on the device: reading each step's would wait for it
            interval.counts[batch.source] += torch.tensor(
                [batch.micro_batch.counts.get(term, 0) for term in self.terms]
            )

    def log(self, step: int, lr: float, result: StepResult, progress: Mapping[str, float]) -> None:
        """Write the events and the progress line after `step` finished steps; all ranks call.

        `progress`: the examples and epochs read of each source, written if there are several.
        """
        moment, interval, ranks = time.monotonic(), self.interval, self.engine.world.size
        seconds = moment - self.since
        losses = self._means()
        forward, rank_figures, slow = self.engine.forward_clock.take(), dict[str, float](), list[str]()
        if self.stragglers:
            rank_figures, slow = self.stragglers.compare(interval.steps, seconds, forward, interval.waited)
        self.skipped += interval.skipped
        self.interval, self.since = self._new_interval(), moment
        if self.engine.world.rank:
            return
        rate = interval.tokens * ranks / seconds
        scalars = {f"loss/{term}": value for term, value in losses.items()}
        grad_norm = float(result.grad_norm)
        scalars |= {"lr": lr, "grad_norm": grad_norm, "loss_scale": result.loss_scale}
        scalars |= {"skipped_steps": self.skipped, "tokens_per_second": rate}
        scalars |= {"data_wait_share": interval.waited / seconds}
        scalars |= progress if len(self.sources) > 1 else {}
        scalars |= {"padding_share": 1 - interval.filled / interval.slots}
        if self.generation is not None:
            scalars["negatives/age"] = step - self.generation
        if self.peak and self.flops_per_token:
            scalars["mfu"] = self.flops_per_token * rate / (self.peak * ranks)
        self._write(step, scalars | rank_figures)
        remarks = self.recipe.method.remarks(losses)
        for line in [*slow, *(remark for term, remark in remarks.items() if self.remarks.get(term) != remark)]:
            warn(f"step {step}: {line}")
        self.remarks = remarks
        eta = (moment - self.began) / (step - self.start) * (self.recipe.steps - step)
        terms = {term: value for term, value in losses.items() if "/" not in term}
        self.info(
            f"step {step}/{self.recipe.steps}  {_listed(terms)}  lr {lr:.2e}  grad {grad_norm:.2f}  "
            f"{rate / 1000:.1f}k tokens/s  data wait {scalars['data_wait_share']:.0%}  ETA {duration(eta)}"
        )

    def validated(self, step: int, losses: Mapping[str, float]) -> None:
        """Write the losses on held-out data."""
        self._write(step, {f"validation/{term}": value for term, value in losses.items()})
        self.info(f"step {step}  validation  {_listed(losses)}")

    def probed(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the figures of the probe."""
        if self._write_once(step, {f"probe/{name}": value for name, value in figures.items()}):
            self.info(f"step {step}  probe  {_listed(figures)}")

    def refreshed(self, step: int, figures_by_source: Mapping[str, Mapping[str, float]]) -> None:
        """Write the figures about new negatives, by the names of the sources."""
        for source, figures in figures_by_source.items():
            end = f"/{source}" if source else ""
            if self._write_once(step, {f"negatives/{name}{end}": value for name, value in figures.items()}):
                self.info(
                    f"step {step}  negatives{end}  {figures['of_a_query']:.0f} a query, {figures['new']:.0%} new, "
                    f"{figures['above_relevant']:.0%} above the relevant document, {figures['minutes']:.1f} min"
                )

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the elapsed time as waiting for data."""
        began = time.monotonic()
        yield
        self.interval.waited += time.monotonic() - began

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Exclude a save, a validation or a probe from the rates; the ETA includes it."""
        began = time.monotonic()
        yield
        self.since += time.monotonic() - began

    @contextmanager
    def counting_flops(self, batches: Sequence[LaneBatch]) -> Iterator[None]:
        """Count the operations of the first step, if the device's peak is known.

        A compiled step cannot be counted, and run without the compiler it would draw other dropout. So a forward pass
        of its first micro-batch is counted, without dropout, and the backward pass taken for twice that.
        """
        if not self.peak or self.flops_per_token is not None:
            yield
            return
        # a layer that is first called while something counts would never be compiled
        eager, counter = torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False)
        first_batch = batches[0]
        if self.recipe.compile:
            with eager, counter:
                self.engine.evaluate(first_batch.micro_batch, first_batch.source)
            self.flops_per_token = 3 * counter.get_total_flops() / first_batch.micro_batch.tokens
            yield
        else:
            with eager, counter:
                yield
            self.flops_per_token = counter.get_total_flops() / sum(batch.micro_batch.tokens for batch in batches)

    def __enter__(self) -> None:
        """Say what will be trained, and how: the first progress line can be minutes away."""
        recipe, engine = self.recipe, self.engine
        precision = str(engine.precision).removeprefix("torch.")
        self.info(
            f"training {recipe.method.name} from step {self.start} to {recipe.steps}: {engine.trained_weights:,} "
            f"weights, {recipe.batch.size} examples a step, {recipe.batch.micro} a micro-batch, "
            f"{engine.world.size} x {engine.device.type} in {precision}; a progress line every {recipe.log_every} steps"
        )

    def info(self, line: str) -> None:
        """Print a line on stdout, from rank 0."""
        if self.engine.world.rank == 0:
            print(line, flush=True)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write pending events; no more can be written."""
        self._close_writer()
        if self.wandb:
            self.wandb.close()

    def _close_writer(self) -> None:
        if writer := self.writer:
            self.writer = None
            with self._or_without_events():
                writer.close()

    def _new_interval(self) -> Interval:
        return Interval(len(self.sources), len(self.terms), self.engine.device)

    def _means(self) -> dict[str, float]:
        """Return each loss term's mean over all ranks since the last line; for several sources also `term/source`."""
        totals = self.engine.sum_over_ranks(
            torch.stack([self.interval.losses, self.interval.counts.to(self.engine.device)])
        )
        losses, counts = totals.tolist()
        rows = list(zip(self.sources, losses, counts, strict=True)) if len(self.sources) > 1 else []
        rows.insert(0, ("", totals[0].sum(0).tolist(), totals[1].sum(0).tolist()))
        return {
            f"{term}/{name}" if name else term: loss / count
            for name, sums, numbers in rows
            for term, loss, count in zip(self.terms, sums, numbers, strict=True)
            if count
        }

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self.wandb and scalars:
            self.wandb.log(step, scalars)
        if writer := self.writer:
            with self._or_without_events():
                for tag, value in scalars.items():
                    writer.add_scalar(tag, value, step)

    def _write_once(self, step: int, scalars: Mapping[str, float]) -> bool:
        """Write the events that follow the checkpoint of a step; return False where all have been written before.

        A run that was stopped before its next checkpoint repeats what follows this one.
        """
        if self.writer and step == self.start:
            written_scalars = scalars_at(self.recipe.run / "tensorboard", step)
            scalars = {tag: value for tag, value in scalars.items() if tag not in written_scalars}
        self._write(step, scalars)
        return bool(scalars)

    @contextmanager
    def _or_without_events(self) -> Iterator[None]:
        """On a full disk, stop writing events until the next `restart`; the training continues."""
        try:
            yield
        except OSError as error:
            self.writer = None
            warn(f"{self.recipe.run / 'tensorboard'}: no more events are written: {error.strerror or error}")


def _listed(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in values.items())


def duration(seconds: float) -> str:
    """Format seconds as h:mm:ss or m:ss."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
