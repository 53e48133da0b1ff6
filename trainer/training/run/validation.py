"""Validation: the losses on held-out data, the same for any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainer.training.data.held_out import HeldOut
from trainer.training.engine.engine import Engine


@dataclass(frozen=True)
class Validation:
    """Held-out data, and how often the losses on all of it are measured."""

    held_out: HeldOut
    every: int  # optimizer steps

    def losses(self, engine: Engine, beat: Callable[[], None]) -> dict[str, float]:
        """Return the mean of every loss term; all ranks call, and `beat` is called after each micro-batch.

        A rank with no micro-batches left repeats the first one, uncounted, until all ranks have finished: under ZeRO-3
        a forward pass needs every rank. The sums are exact (math.fsum), so they do not depend on the number of ranks.
        """
        terms = list(engine.weights)
        sums: list[list[float]] = []
        counts = torch.zeros(len(terms), dtype=torch.int64)
        filler = self.held_out.first()
        own = self.held_out.micro_batches(engine.world.rank, engine.world.size)
        while True:
            batch = next(own, None)
            if not engine.sum_over_ranks(torch.tensor([batch is not None])).item():
                break
            losses = engine.evaluate(batch or filler)
            if batch is not None:
                sums.append(losses.tolist())
                counts += torch.tensor([batch.counts[term] for term in terms])
            beat()
        rows = [row for rank_sums in engine.gather(sums) for row in rank_sums]
        totals = engine.sum_over_ranks(counts).tolist()
        return {term: math.fsum(row[i] for row in rows) / max(1, totals[i]) for i, term in enumerate(terms)}
