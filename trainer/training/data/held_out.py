"""Held-out data: any number of ranks reads it once, with the same random choices every time.

Opened with the data; read by each validation, never by a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.models.interface import Batcher, MicroBatch
from deepsiam.trainer.training.data.lanes import ItemSource, examples_of
from deepsiam.trainer.training.errors import SharedError


@dataclass(frozen=True)
class HeldOut:
    """Held-out data in units of `window` consecutive chunks, which the ranks share."""

    source: ItemSource
    batcher: Batcher
    seed: int
    window: int
    micro_batch: int  # examples; the last micro-batch of a unit may have fewer
    number: int = 0  # of its source in the run
    name: str = ""  # of its source, if there are several

    def units(self) -> list[list[tuple[int, int]]]:
        """Return the (shard, chunk) pairs of every unit."""
        chunks = [(shard, chunk) for shard, count in enumerate(self.source.chunks) for chunk in range(count)]
        return [chunks[start : start + self.window] for start in range(0, len(chunks), self.window)]

    def micro_batches(self, rank: int, world_size: int) -> Iterator[MicroBatch]:
        """Yield the micro-batches of one rank, from the units rank, rank + world_size, ..."""
        units = self.units()
        for number in range(rank, len(units), world_size):
            items = [item for shard, chunk in units[number] for item in self.source.read(shard, chunk)]
            examples = examples_of(self.batcher, items)
            for start in range(0, len(examples), self.micro_batch):
                batch = examples[start : start + self.micro_batch]
                keys = [(self.seed, number, start + i) for i in range(len(batch))]
                yield self.batcher.micro_batch(batch, keyed_rngs("validation", keys))
            later = {shard for unit in units[number + world_size : number + world_size + 1] for shard, _ in unit}
            for shard in {shard for shard, _ in units[number]} - later:
                self.source.release(shard)

    def first(self) -> MicroBatch:
        """Return the very first micro-batch; raise SharedError if the held-out data give none."""
        batch = next(self.micro_batches(0, 1), None)
        if batch is None:
            raise SharedError("validation: the held-out data give no example: name others, or set validation=null")
        return batch
