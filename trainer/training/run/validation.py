"""Validation: the losses on held-out data, the same for any number of ranks.

The loop calls it after a step, when one is due, and before a save that is due then too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from deepsiam.trainer.training.data.held_out import HeldOut
from deepsiam.trainer.training.engine.engine import Engine


@dataclass(frozen=True)
class Validation:
    """Held-out data of one source or of several, and how often the losses on all of it are measured."""

    held_out: Sequence[HeldOut]
    every: int  # optimizer steps

    def losses(self, engine: Engine, beat: Callable[[], None]) -> dict[str, float]:
        """Return the mean of every loss term that has targets, for several sources also `term/source`; all ranks call.

        `beat` is called after each micro-batch. The sums are exact (math.fsum), so they do not depend on the number of
        ranks.
        """
        by_source = {part.name: _sums(part, engine, beat) for part in self.held_out}
        several = by_source if len(by_source) > 1 else {}
        every = [row for rows, _ in by_source.values() for row in rows]
        counts_of_all = torch.stack([counts for _, counts in by_source.values()]).sum(dim=0)
        return {
            f"{term}/{name}" if name else term: math.fsum(row[i] for row in rows) / int(counts[i])
            for name, (rows, counts) in {"": (every, counts_of_all), **several}.items()
            for i, term in enumerate(engine.terms)
            if counts[i]
        }


def _sums(held_out: HeldOut, engine: Engine, beat: Callable[[], None]) -> tuple[list[list[float]], torch.Tensor]:
    """Return the summed losses of all micro-batches of all ranks, and the number of each term's targets.

    A rank with no micro-batches left repeats the first one, uncounted, until all ranks have finished: under ZeRO-3 a
    forward pass needs every rank.
    """
    sums: list[list[float]] = []
    counts = torch.zeros(len(engine.terms), dtype=torch.int64)
    filler = held_out.first()
    own = held_out.micro_batches(engine.world.rank, engine.world.size)
    while True:
        batch = next(own, None)
        if not engine.sum_over_ranks(torch.tensor([batch is not None])).item():
            break
        losses = engine.evaluate(batch or filler, held_out.number)
        if batch is not None:
            sums.append(losses.tolist())
            counts += torch.tensor([batch.counts.get(term, 0) for term in engine.terms])
        beat()
    return [row for rank_sums in engine.gather(sums) for row in rank_sums], engine.sum_over_ranks(counts)
