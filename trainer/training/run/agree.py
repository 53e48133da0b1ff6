"""What the ranks exchange before a step: all its numbers in one message, the only one that the host waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from models.arrays import sent
from trainer.training.data.cursor import Cursor
from trainer.training.data.order import LaneBatch
from trainer.training.engine.engine import Engine
from trainer.training.run.health import Health


class Agreed(NamedTuple):
    """What all ranks know before a step; if the last one was not sound, nothing else counts."""

    sound: bool  # whether losses and gradients of the last step were finite
    targets: dict[str, int]  # of every loss term, in the next step, on all ranks
    stop: bool  # whether a stop is requested


def agree(engine: Engine, health: Health, cursor: Cursor, batches: Sequence[LaneBatch], stop_requested: bool) -> Agreed:
    """Agree on the step of this rank's `batches`; all ranks call.

    Shards that any rank had to skip since the last step are recorded in the cursor, and reported.
    """
    targets = [sum(batch.micro_batch.counts[term] for batch in batches) for term in engine.weights]
    skips = [skip for batch in batches for skip in batch.skips]
    own = [*targets, stop_requested, len(skips)]
    *targets, stop_requests, skip_count, bad, still = exchange(engine, health, own)
    sound = health.is_sound(bad, still)
    if sound and skip_count:
        skips = [skip for rank_skips in engine.gather(skips) for skip in rank_skips]
        cursor.skips.update(skips)
        health.check_bad_shards(cursor, skips)
    return Agreed(sound, dict(zip(engine.weights, targets, strict=True)), stop_requests > 0)


def exchange(engine: Engine, health: Health, own: Sequence[int] = ()) -> list[int]:
    """Sum this rank's own numbers, and its flags of the last step, over the ranks; all ranks call.

    A step waits for the device only here, apart from DeepSpeed's own waits.
    """
    flags = health.flags()
    values = torch.cat([sent(torch.tensor(own, dtype=torch.int64), flags.device), flags])
    summed: list[int] = engine.sum_over_ranks(values).tolist()
    return summed
