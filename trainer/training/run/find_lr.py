"""A learning-rate range test (Smith, 2017): train a few steps at rising rates, and see where the loss falls and rises.

It stands in place of the loop: with `--find-lr` the command calls it after the job is built.

Nothing is written: the model is trained in memory alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch

from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.loader import Loader
from deepsiam.trainer.training.data.mixing import Mix
from deepsiam.trainer.training.data.order import LaneBatch, dropout_seed
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World, say
from deepsiam.trainer.training.recipe.objective import Objective, objectives
from deepsiam.trainer.training.recipe.schema import BatchConfig
from deepsiam.trainer.training.run.agree import counts, split_by_source
from deepsiam.trainer.training.run.job import Job
from deepsiam.trainer.training.run.watchdog import Watchdog

RATES = [10 ** (-7 + level / 3) for level in range(19)]  # 1e-7 to 0.1
STEPS = 5  # at each rate: 95 in all
EXAMPLES = 256  # at least, on which the loss is measured
MOST_MEASURED = 20  # steps that the loss is measured on to have examples of every source
DIVERGED = 2.0  # a loss of so many times the first one ends the test
LEAST_FALL = 0.01  # share of the first loss by which the loss must fall for a suggestion
BELOW = 10.0  # the suggestion is the rate of the lowest loss, divided by this
WIDTH = 50  # of the longest bar


def find_lr(job: Job, world: World) -> None:
    """Train at rising rates until the loss has diverged; print a line for each, and a suggestion; all ranks call."""
    losses: list[float] = []
    say("learning rate      loss")
    with Watchdog(job.recipe.faults.hang_seconds, world.rank) as watchdog:
        for loss in _losses(job, Engine(job.model, job.recipe, world), watchdog.beat):
            losses.append(loss)
            say(row([0, *RATES][len(losses) - 1], loss, losses[0]))
            if not loss <= DIVERGED * losses[0]:  # or it is NaN
                break
    say(*small_source_warnings(job, (len(losses) - 1) * STEPS), suggestion(losses))


def row(rate: float, loss: float, first_loss: float) -> str:
    """Return the line of a rate, with a bar of the loss after it: as long as `WIDTH` where it ends the test."""
    share = loss / first_loss / DIVERGED if first_loss else 0.0
    bar = "#" * round(WIDTH * min(share, 1.0)) if math.isfinite(loss) else "diverged"
    return f"{rate:13.1e}  {loss:8.4f}  {bar}"


def suggestion(losses: list[float]) -> str:
    """Return the line with the suggested rate: a tenth of the one after which the loss was lowest."""
    first_loss, *later_losses = (loss if math.isfinite(loss) else math.inf for loss in losses)
    if not min(later_losses, default=math.inf) < first_loss * (1 - LEAST_FALL):
        return "no suggestion: the loss did not fall at any rate: check the data, the method and what it starts from"
    rate = RATES[later_losses.index(min(later_losses))]
    return f"suggestion: optimizer.lr={rate / BELOW:.1e} (a tenth of {rate:.1e}, where the loss was lowest)"


def small_source_warnings(job: Job, trained: int) -> list[str]:
    """Return a warning for each source of data that is too small for `trained` steps and the measurements.

    It is read twice, so the loss is measured on examples that were trained on.
    """
    steps = _measured(job.recipe.batch, job.order.mix) + trained
    progress = job.order.progress(steps * job.recipe.batch.micro_batches)
    epochs = {name: number for name in job.order.names if (number := progress.get(f"epochs/{name}", 0.0)) > 1}
    return [
        f"{f'data.mix.{name}' if name else 'the data'} was read {number:.1f} times: the examples that the loss is "
        "measured on were trained on too, so the best rate may be lower"
        for name, number in epochs.items()
    ]


def _losses(job: Job, engine: Engine, beat: Callable[[], None]) -> Iterator[float]:
    """Yield the loss on the first examples of the run before any step, and after the steps at each rate on later ones.

    Always the same examples: the differences between batches would hide those between rates.
    """
    recipe, world = job.recipe, engine.world
    start = Cursor(job.order.start(), micro_sizes={0: recipe.batch.micro})
    stream = Loader(job.order, world.rank, world.size, recipe.data.workers).micro_batches(start)
    fixed = list(islice(stream, engine.accumulation * _measured(recipe.batch, job.order.mix)))
    yield _loss(engine, fixed, beat)
    for number, rate in enumerate(RATES):
        for step in range(number * STEPS, (number + 1) * STEPS):
            batches = list(islice(stream, engine.accumulation))
            seeds = [dropout_seed(recipe.seed, batch.index) for batch in batches]
            by_source = _objectives(engine, step, batches)
            step_objectives = [by_source[batch.source] for batch in batches]
            engine.step([batch.micro_batch for batch in batches], step_objectives, seeds, rate)
            beat()
        yield _loss(engine, fixed, beat)


def _measured(batch: BatchConfig, mix: Mix) -> int:
    # as many steps as have EXAMPLES, and some of every source, where a step is of one
    least_steps = math.ceil(EXAMPLES / batch.size)
    enough = (steps for steps in range(least_steps, MOST_MEASURED) if all(mix.drawn(steps * batch.micro_batches)))
    return next(enough, max(least_steps, MOST_MEASURED))


def _loss(engine: Engine, batches: Sequence[LaneBatch], beat: Callable[[], None]) -> float:
    """Return the loss on whole steps of all ranks, without dropout, with the weights of a run's first step."""
    sums = torch.zeros(len(engine.methods), len(engine.terms), dtype=torch.float64)
    for start in range(0, len(batches), engine.accumulation):
        part = batches[start : start + engine.accumulation]
        losses = engine.evaluate_step([batch.micro_batch for batch in part], [batch.source for batch in part])
        for batch, row_of_losses in zip(part, losses.double().cpu(), strict=True):
            sums[batch.source] += row_of_losses
        beat()
    pairs = zip(_objectives(engine, 0, batches), engine.sum_over_ranks(sums), strict=True)
    return float(sum(objective.scalar(dict(zip(engine.terms, total, strict=True))) for objective, total in pairs))


def _objectives(engine: Engine, step: int, batches: Sequence[LaneBatch]) -> list[Objective]:
    """Return the objective of every source for micro-batches of all ranks, with the weights of a step."""
    counted = engine.sum_over_ranks(torch.tensor(counts(engine, batches)))
    return objectives(engine.methods, step, *split_by_source(engine, counted.tolist()))
