"""A source of integers and a batcher that returns them, to track every item through lanes, order and loader."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.data.lanes import Lanes
from deepsiam.trainer.training.data.mixing import Mix
from deepsiam.trainer.training.data.order import Order

UNEVEN = [1, 3, 2, 5, 1, 1, 4, 2, 2]  # chunks of each shard
EVERYTHING = {s * 1000 + c * 100 + i for s, chunks in enumerate(UNEVEN) for c in range(chunks) for i in range(3)}


class Numbers:
    """Shards whose chunks hold distinct integers; the chunks in `bad`, given as (shard, chunk), cannot be read."""

    def __init__(self, chunks: Sequence[int], per_chunk: int = 3, bad: Collection[tuple[int, int]] = ()):
        self.chunks, self.per_chunk, self.bad = list(chunks), per_chunk, bad

    def read(self, shard: int, chunk: int) -> list[int]:
        if (shard, chunk) in self.bad:
            raise InputError(f"shard {shard} is damaged")
        return [shard * 1000 + chunk * 100 + i for i in range(self.per_chunk)]

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        pass

    def release(self, shard: int) -> None:
        pass

    def cached_bytes(self, shards: int) -> int:
        return 0

    def name(self, shard: int, chunk: int, item: int) -> str:
        return str(shard * 1000 + chunk * 100 + item)


class Echo:
    """A batcher that returns each item with a random number drawn for it."""

    def examples(self, documents: Sequence[Any]) -> list[Any]:
        return list(documents)

    def origins(self, documents: Sequence[Any]) -> list[list[int]]:
        return [[i] for i in range(len(documents))]

    def micro_batch(self, examples: Sequence[Any], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        numbers = [(example, int(rng.integers(2**31))) for example, rng in zip(examples, rngs, strict=True)]
        return MicroBatch({"items": np.array(numbers)}, {"loss": len(examples)}, len(examples))


def lanes_of(chunks: Sequence[int], lanes: int = 4, window: int = 2, micro_batch: int = 4, **options: Any) -> Lanes:
    bad = options.pop("bad", ())
    source = Numbers(chunks, bad=bad)
    return Lanes(source, Echo(), seed=7, lanes=lanes, window=window, micro_batch=micro_batch, **options)


def order_of(*lanes: Lanes, weights: Sequence[float] = (1,)) -> Order:
    return Order({f"s{number}": source for number, source in enumerate(lanes)}, Mix(weights, 3))


def items(batches: Any) -> list[tuple[int, int]]:
    """Every (item, random number) of micro-batches, in order."""
    return [tuple(item) for batch in batches for item in batch.micro_batch.arrays["items"].tolist()]
