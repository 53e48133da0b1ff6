"""The deterministic order of data: V logical lanes, whose order no cluster can change (DESIGN section 5).

A permutation keyed by (seed, epoch) deals the shards of a source to the lanes. A lane reads its shards in turn, for
ever, epoch after epoch; the documents of every `window` consecutive chunks are shuffled together. Global micro-batch
`a` comes wholly from lane `a mod V`, and ranks and loader workers share out whole lanes, so the examples of an
optimizer step are the same for any number of either. A lane's position is three integers: resuming re-reads a window.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from data_prep.errors import InputError
from models.task import Batcher, MicroBatch


class Source(Protocol):
    """Numbered shards of numbered chunks of items: what lanes are dealt."""

    @property
    def chunks(self) -> Sequence[int]:
        """The number of chunks of every shard."""

    def read(self, shard: int, chunk: int) -> list[Any]:
        """The items of one chunk, in their stored order."""


class Position(NamedTuple):
    """The next example of a lane: its epoch, the window of that epoch, the example of that window."""

    epoch: int
    window: int
    example: int


START = Position(0, 0, 0)


@dataclass(frozen=True)
class LaneBatch:
    """A micro-batch with the place it came from; `after` is recorded when the batch has been trained on."""

    micro_batch: MicroBatch
    index: int  # the global micro-batch number
    lane: int
    after: Position


def keyed_rng(purpose: str, *key: int) -> np.random.Generator:
    """A counter-based generator that depends on nothing but its purpose and integer key."""
    digest = hashlib.blake2b(purpose.encode() + struct.pack(f"<{len(key)}q", *key), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype=np.uint64)))


def dropout_seed(seed: int, micro_batch: int) -> int:
    """What seeds torch before a global micro-batch: its dropout, too, is the same on any cluster."""
    return int(keyed_rng("dropout", seed, micro_batch).integers(2**63))


class LaneOrder:
    """Every lane of a source, readable from any position.

    Raises InputError where the source has fewer shards than lanes: a lane would have nothing to read.
    """

    def __init__(self, source: Source, batcher: Batcher, *, seed: int, lanes: int, window: int, micro_batch: int):
        if len(source.chunks) < lanes:
            raise InputError(
                f"data.lanes: {lanes} lanes need at least {lanes} shards, the data has {len(source.chunks)}: "
                f"write more, smaller shards, or set data.lanes to {len(source.chunks)} or less"
            )
        self.source, self.batcher = source, batcher
        self.seed, self.lanes, self.window, self.size = seed, lanes, window, micro_batch

    def micro_batches(self, lane: int, position: Position) -> Iterator[tuple[MicroBatch, Position]]:
        """The lane's micro-batches from `position` on, for ever, each with the position after it."""
        examples: list[Any] = []
        rngs: list[np.random.Generator] = []
        for example, rng, after in self._examples(lane, position):
            examples.append(example)
            rngs.append(rng)
            if len(examples) == self.size:
                yield self.batcher.micro_batch(examples, rngs), after
                examples, rngs = [], []

    def _examples(self, lane: int, position: Position) -> Iterator[tuple[Any, np.random.Generator, Position]]:
        epoch, from_window, first = position
        while True:
            chunks = self._chunks(lane, epoch)
            read_any = from_window > 0 or first > 0
            for window in range(from_window, -(-len(chunks) // self.window)):
                examples = self._window(lane, epoch, window, chunks)
                for index in range(first, len(examples)):
                    rng = keyed_rng("example", self.seed, epoch, lane, window, index)
                    yield examples[index], rng, Position(epoch, window, index + 1)
                    read_any = True
                first = 0
            if not read_any:
                raise InputError(f"lane {lane}, epoch {epoch}: its shards hold no text to make an example of")
            epoch, from_window = epoch + 1, 0

    def _chunks(self, lane: int, epoch: int) -> list[tuple[int, int]]:
        """The (shard, chunk) pairs the lane reads in an epoch, in order."""
        deal = keyed_rng("deal", self.seed, epoch).permutation(len(self.source.chunks))
        return [(int(s), chunk) for s in deal[lane :: self.lanes] for chunk in range(self.source.chunks[s])]

    def _window(self, lane: int, epoch: int, window: int, chunks: Sequence[tuple[int, int]]) -> list[Any]:
        """The examples of one shuffled window."""
        in_window = chunks[window * self.window : (window + 1) * self.window]
        items = [item for shard, chunk in in_window for item in self.source.read(shard, chunk)]
        order = keyed_rng("shuffle", self.seed, epoch, lane, window).permutation(len(items))
        return self.batcher.examples([items[i] for i in order])


def stream(order: LaneOrder, positions: Sequence[Position], first: int, stride: int) -> Iterator[LaneBatch]:
    """Global micro-batches `first`, `first + stride`, ...: what one rank, or one loader worker of it, trains on.

    `positions` holds every lane's position before the micro-batch that this stream takes from it first.
    """
    readers: dict[int, Iterator[tuple[MicroBatch, Position]]] = {}
    index = first
    while True:
        lane = index % order.lanes
        if lane not in readers:
            readers[lane] = order.micro_batches(lane, positions[lane])
        micro_batch, after = next(readers[lane])
        yield LaneBatch(micro_batch, index, lane, after)
        index += stride
