"""The data of a run once opened, the settings that its numbers depend on, and the room that remote shards need.

Opened once, by open_shards.py or open_pairs.py, before the model is built; the job then has its parts. A step reads the
order; each validation reads the held-out data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.interface import Batcher, MicroBatch
from deepsiam.trainer.training.data.lanes import ItemSource, examples_of
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import Recipe

if TYPE_CHECKING:  # few runs need it
    from deepsiam.trainer.training.data.teacher import TeacherVectors


@dataclass(frozen=True)
class HeldOut:
    """Held-out data in units of `window` consecutive chunks, which the ranks share.

    Any number of ranks reads it once, with the same random choices every time.
    """

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
            # a shard that this rank's next unit begins in stays open
            later = {shard for unit in units[number + world_size : number + world_size + 1] for shard, _ in unit}
            for shard in {shard for shard, _ in units[number]} - later:
                self.source.release(shard)

    def first(self) -> MicroBatch:
        """Return the very first micro-batch; raise SharedError if the held-out data give none."""
        batch = next(self.micro_batches(0, 1), None)
        if batch is None:
            raise SharedError("validation: the held-out data give no example: name others, or set validation=null")
        return batch


@dataclass(frozen=True)
class Data:
    """The order of the micro-batches, the held-out data, and their tokenizer."""

    order: Order
    held_out: Sequence[HeldOut]  # of each source that has some
    tokenizer: Tokenizer
    sha256: dict[str, str]  # of every source, by name
    remarks: Sequence[str] = ()  # what the user should know about the data, one line each
    teacher: TeacherVectors | None = None


def resume_invariants(recipe: Recipe, data: Data) -> dict[str, Any]:
    """Return all settings except the schedule that a run's numbers depend on: they must not change on resume."""
    start = ("trunk", "init_from", "bidirectional", "random_weights")
    keys = recipe.model_dump(mode="json", include={*start, "refresh", "method", "optimizer"})
    optimizer = keys.pop("optimizer")
    return {
        "seed": recipe.seed,
        **{key: value for key, value in keys.items() if key != "method"},
        # the name comes first: only the first difference is reported
        "method": {"name": recipe.method.name, **keys["method"]},
        "data": recipe.data.model_dump(mode="json", exclude={"workers", "cache", "cache_bytes"}),
        "batch.size": recipe.batch.size,
        # other methods give the same numbers whatever the micro-batches are
        **({"batch.micro": recipe.batch.micro} if any(m.compares_micro_batch for m in recipe.methods) else {}),
        "optimizer.name": optimizer["name"],
        "optimizer.train": optimizer["train"],
        "optimizer": {key: optimizer[key] for key in ("betas", "eps", "weight_decay", "ema") if key in optimizer},
        "data sha256": data.sha256,
        **({"data.teacher sha256": data.teacher.sha256} if data.teacher else {}),
    }


def check_cache_room(
    order: Order, held_out: Sequence[HeldOut], limit: int, *, world_size: int, local_size: int, workers: int
) -> None:
    """Raise InputError if the cache, of `limit` bytes, cannot hold what the ranks of a host keep open at once.

    Every lane keeps a shard of each source open between its windows. A rank, or each of its `workers`, reads one window
    at a time, and keeps all shards of it open. A validation adds a window of each rank.
    """
    lanes, readers = order.lanes * local_size // world_size, local_size * max(1, workers)
    cache_bytes = 0
    for source in order.sources.values():
        # one shard of each window is the one that its lane keeps open anyway
        in_a_window = most_in_a_window(source.source.chunks, source.window)
        cache_bytes += source.source.cached_bytes(lanes + readers * (in_a_window - 1))
    for part in held_out:
        cache_bytes += part.source.cached_bytes(local_size * most_in_a_window(part.source.chunks, part.window))
    if cache_bytes > limit:
        raise InputError(
            f"data.cache_bytes: {limit} bytes cannot hold what the {lanes} lanes of a host"
            f"{' and a validation' if held_out else ''} keep open at once; set at least {cache_bytes}, or twice that "
            "to fetch ahead"
        )


def most_in_a_window(chunks: Sequence[int], window: int) -> int:
    """Return the most shards, with these numbers of chunks, that `window` consecutive chunks can touch.

    The first and the last shard may be touched in one chunk; those between are whole.
    """
    between = int(np.cumsum(np.sort(chunks)).searchsorted(window - 2, side="right"))
    return min(window, between + 2, len(chunks))
