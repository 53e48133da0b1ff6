"""The losses on held-out data: read once, exactly, by any number of ranks, with the same masks every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from models.task import Batcher, MicroBatch
from trainer.faults import SharedError
from trainer.keyed import keyed_rngs
from trainer.lanes import Source, examples_of

if TYPE_CHECKING:  # importing it imports DeepSpeed, which trainer.trace does without
    from trainer.engine import Engine


@dataclass(frozen=True)
class Validation:
    """Held-out data in units of so many consecutive chunks, which the ranks share out."""

    source: Source
    batcher: Batcher
    seed: int
    window: int  # chunks of a unit
    micro_batch: int  # examples; a unit's last micro-batch may have fewer
    every: int  # optimizer steps

    def units(self) -> list[list[tuple[int, int]]]:
        """The (shard, chunk) pairs of every unit."""
        chunks = [(shard, chunk) for shard, number in enumerate(self.source.chunks) for chunk in range(number)]
        return [chunks[start : start + self.window] for start in range(0, len(chunks), self.window)]

    def micro_batches(self, rank: int, world_size: int) -> Iterator[MicroBatch]:
        """What one rank reads: the units rank, rank + world_size, ..."""
        units = self.units()
        for number in range(rank, len(units), world_size):
            items = [item for shard, chunk in units[number] for item in self.source.read(shard, chunk)]
            examples = examples_of(self.batcher, items)
            for start in range(0, len(examples), self.micro_batch):
                some = examples[start : start + self.micro_batch]
                keys = [(self.seed, number, start + i) for i in range(len(some))]
                yield self.batcher.micro_batch(some, keyed_rngs("validation", keys))
            later = {shard for unit in units[number + world_size : number + world_size + 1] for shard, _ in unit}
            for shard in {shard for shard, _ in units[number]} - later:
                self.source.release(shard)

    def first(self) -> MicroBatch:
        """The first micro-batch of all; SharedError where the held-out data have none."""
        batch = next(self.micro_batches(0, 1), None)
        if batch is None:
            raise SharedError("validation: the held-out data hold nothing to make an example of")
        return batch

    def losses(self, engine: Engine, beat: Callable[[], None]) -> dict[str, float]:
        """The mean of every loss term, the same for any number of ranks; all ranks call, `beat` after each batch.

        A rank that has nothing left goes on with what does not count until all are through: under ZeRO-3 a forward
        pass takes every rank. The sums are exact (math.fsum), so sharing them out otherwise changes nothing.
        """
        terms = list(engine.weights)
        sums: list[list[float]] = []
        counts = torch.zeros(len(terms), dtype=torch.int64)
        filler = self.first()
        mine = self.micro_batches(engine.world.rank, engine.world.size)
        while True:
            batch = next(mine, None)
            if not engine.sum_over_ranks(torch.tensor([batch is not None])).item():
                break
            losses = engine.evaluate(batch or filler)
            if batch is not None:
                sums.append(losses.tolist())
                counts += torch.tensor([batch.counts[term] for term in terms])
            beat()
        everyone = [row for rows in engine.gather(sums) for row in rows]
        totals = engine.sum_over_ranks(counts).tolist()
        return {term: math.fsum(row[i] for row in everyone) / max(1, totals[i]) for i, term in enumerate(terms)}
