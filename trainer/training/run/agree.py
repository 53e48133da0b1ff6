"""Before each step all ranks agree on everything in a single message, so the CPU waits for the network once.

The loop calls `agree` after it has taken a step's micro-batches, and before the engine computes. The counts of targets
divide the losses, so the step's gradient is that of its whole batch, whatever a rank's share.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from deepsiam.models.arrays import to_device
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.order import LaneBatch
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.run.health import Health


class Agreed(NamedTuple):
    """What all ranks know before a step; if the last one was not sound, this step is not taken."""

    sound: bool  # whether losses and gradients of the last step were finite
    micro_batches: list[int]  # of every source, in the next step, on all ranks
    targets: list[dict[str, int]]  # likewise, of every loss term
    stop: bool  # whether a stop is requested


def agree(engine: Engine, health: Health, cursor: Cursor, batches: Sequence[LaneBatch], stop_requested: bool) -> Agreed:
    """Agree on the step of this rank's `batches`; all ranks call.

    Shards that any rank had to skip since the last step are recorded in the cursor, and reported, also where the last
    step was not sound: the run goes on behind them.
    """
    skips = [skip for batch in batches for skip in batch.skips]
    numbers = [*counts(engine, batches), stop_requested, len(skips)]  # sums, so any rank can ask for a stop
    *counted, stop_requests, skip_count, not_finite, zero_gradients = exchange(engine, health, numbers)
    sound = health.judge(not_finite, zero_gradients)
    if skip_count:
        skips = [skip for rank_skips in engine.gather(skips) for skip in rank_skips]
        cursor.skips.update(skips)
        health.check_bad_shards(cursor, skips)
    return Agreed(sound, *split_by_source(engine, counted), stop_requests > 0)


def counts(engine: Engine, batches: Sequence[LaneBatch]) -> list[int]:
    """Count this rank's micro-batches by source, then the targets of every loss term by source."""
    sources = range(len(engine.methods))
    by_source = [[batch.micro_batch.counts for batch in batches if batch.source == source] for source in sources]
    targets = [sum(batch.get(term, 0) for batch in by_source[i]) for i in sources for term in engine.terms]
    return [*map(len, by_source), *targets]


def split_by_source(engine: Engine, counted: Sequence[int]) -> tuple[list[int], list[dict[str, int]]]:
    """Return the micro-batches and the targets of every source, of what `counts` made, summed over the ranks."""
    sources, terms = len(engine.methods), engine.terms
    rows = [counted[start : start + len(terms)] for start in range(sources, len(counted), len(terms))]
    return list(counted[:sources]), [dict(zip(terms, row, strict=True)) for row in rows]


def exchange(engine: Engine, health: Health, numbers: Sequence[int] = ()) -> list[int]:
    """Sum this rank's numbers, and its flags of the last step, over the ranks; all ranks call.

    A step waits for the device only here, apart from DeepSpeed's own waits.
    """
    flags = health.flags()
    values = torch.cat([to_device(torch.tensor(numbers, dtype=torch.int64), flags.device), flags])
    summed: list[int] = engine.sum_over_ranks(values).tolist()
    return summed
