"""The lanes of one source of data: V logical readers, whose order is independent of the cluster.

A permutation keyed by (seed, epoch) deals the shards of a source to the lanes. A lane reads its shards one after
another, epoch after epoch, without end; the documents of every `window` consecutive chunks are shuffled together. A
lane's position is three integers: resuming re-reads one window. order.py asks a lane for its next micro-batch, and
combines the lanes of all sources into the order of a run.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from deepsiam.data_prep.common.errors import CacheError, InputError
from deepsiam.data_prep.common.json_file import Count
from deepsiam.data_prep.common.rng import keyed_rng, keyed_rngs
from deepsiam.models.interface import Batcher, MicroBatch


class ItemSource(Protocol):
    """Numbered shards of numbered chunks of items: what is dealt to the lanes."""

    @property
    def chunks(self) -> Sequence[int]:
        """The number of chunks of every shard."""

    def read(self, shard: int, chunk: int) -> list[Any]:
        """Read the items of one chunk, in their stored order; raise InputError if it cannot be read."""

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Prepare shards that will be read soon."""

    def release(self, shard: int) -> None:
        """Release a shard that is no longer in use."""

    def cached_bytes(self, shards: int) -> int:
        """Return the bytes that the `shards` largest shards take in a cache of the host; 0 without one."""

    def name(self, shard: int, chunk: int, item: int) -> str:
        """Describe an item in readable form: its place and its id."""


class Position(NamedTuple):
    """The next example of a lane: the epoch, the window in the epoch, the example in the window."""

    epoch: Count
    window: Count
    example: Count


START = Position(0, 0, 0)
MOST_EMPTY_EPOCHS = 10  # consecutive epochs without an example after which a lane gives up


class Skip(NamedTuple):
    """A shard that could not be read in an epoch, from one of its chunks on."""

    source: Count
    epoch: Count
    shard: Count
    chunk: Count
    reason: str


class LaneStep(NamedTuple):
    """A micro-batch of a lane, the positions before and after it, and the shards skipped before it."""

    micro_batch: MicroBatch
    start: Position
    end: Position
    skips: tuple[Skip, ...]


def examples_of(batcher: Batcher, items: list[Any]) -> list[Any]:
    """Cut a window of items into a batcher's examples; raise InputError where the method cannot use such data."""
    try:
        return batcher.examples(items)
    except ValueError as error:
        raise InputError(f"method: {error}") from None


class Lanes:
    """Every lane of a source, readable from any position.

    `number` is the source's number in the run. With `skip_bad`, unreadable shards are skipped. Raise InputError if the
    source has fewer shards than lanes: a lane would have nothing to read.
    """

    def __init__(
        self,
        source: ItemSource,
        batcher: Batcher,
        *,
        seed: int,
        lanes: int,
        window: int,
        micro_batch: int,
        number: int = 0,
        skip_bad: bool = False,
    ):
        if len(source.chunks) < lanes:
            raise InputError(
                f"data.lanes: {lanes} lanes need at least {lanes} shards (in fine-tuning: pairs), the data has "
                f"{len(source.chunks)}: set data.lanes to {len(source.chunks)} or less, or prepare more of them"
            )
        self.source, self.batcher, self.chunks = source, batcher, np.asarray(source.chunks)
        self.seed, self.lanes, self.window, self.size = seed, lanes, window, micro_batch
        self.number, self.skip_bad = number, skip_bad
        self.bad_from: dict[tuple[int, int], int] = {}  # (epoch, shard): the first chunk skipped
        self.deal = lru_cache(2)(self._deal)  # some lanes may be an epoch ahead

    def skip(self, skips: Iterable[Skip]) -> None:
        """Skip the shards that the run skipped before it was resumed."""
        self.bad_from |= {(skip.epoch, skip.shard): skip.chunk for skip in skips if skip.source == self.number}

    def micro_batches(self, lane: int, position: Position) -> Iterator[LaneStep]:
        """Yield the lane's micro-batches from `position` on, without end."""
        examples: list[Any] = []  # a micro-batch may begin in one window and end in the next: no example is dropped
        keys: list[tuple[int, ...]] = []
        skips: list[Skip] = []
        for example, key, end in self._examples(lane, position, skips):
            examples.append(example)
            keys.append(key)
            if len(examples) == self.size:
                micro_batch = self.batcher.micro_batch(examples, keyed_rngs("example", keys))
                yield LaneStep(micro_batch, position, end, tuple(skips))
                position = end
                examples, keys = [], []
                skips.clear()

    def origins(self, lane: int, position: Position, count: int) -> list[list[str]]:
        """For each of the `count` examples from `position` on, name the items that it was cut from."""
        names: list[list[str]] = []
        start = position.example
        for _, _, items in self.windows(lane, position, []):
            origins = self.batcher.origins([item for _, item in items])
            for numbers in origins[start : start + count - len(names)]:
                names.append([self.source.name(*items[i][0]) for i in numbers])
            if len(names) == count:
                break
            start = 0
        return names

    def windows(
        self, lane: int, position: Position, skips: list[Skip]
    ) -> Iterator[tuple[int, int, list[tuple[tuple[int, int, int], Any]]]]:
        """Yield (epoch, window, shuffled items with their (shard, chunk, number)); add unreadable shards to `skips`."""
        epoch, from_window, _ = position
        while True:
            shards_read = self.deal(epoch)[lane :: self.lanes]  # of one permutation for all lanes: each shard once
            chunks_read = self.chunks[shards_read].cumsum()  # when each shard has been read
            # at least one window, if an empty one: else a lane without chunks would never give up
            for window in range(from_window, max(1, -(-int(chunks_read[-1]) // self.window))):
                in_window, next_window = (self._chunks(shards_read, chunks_read, w) for w in (window, window + 1))
                shards, later = (list(dict.fromkeys(shard for shard, _ in w)) for w in (in_window, next_window))
                self.source.fetch_ahead(later)  # before reading, so that the next window downloads meanwhile
                items = [item for place in in_window for item in self._read(epoch, *place, skips)]
                for shard in set(shards) - set(later):  # one that goes on in the next window stays open
                    self.source.release(shard)
                # a whole window at once, keyed by its place: no buffer whose state a resume would have to restore
                order = keyed_rng("shuffle", self.seed, epoch, lane, window).permutation(len(items))
                yield epoch, window, [items[i] for i in order]
            epoch, from_window = epoch + 1, 0

    def _examples(
        self, lane: int, position: Position, skips: list[Skip]
    ) -> Iterator[tuple[Any, tuple[int, ...], Position]]:
        start, last_epoch = position.example, position.epoch  # the last epoch with an example
        for epoch, window, items in self.windows(lane, position, skips):
            if epoch - last_epoch > MOST_EMPTY_EPOCHS:
                raise InputError(f"lane {lane}, epochs {last_epoch} to {epoch - 1}: its shards give no example")
            examples = examples_of(self.batcher, [item for _, item in items])
            for index in range(start, len(examples)):
                # an example has its own key: its masks depend on no rank, no worker and no size of a micro-batch
                key = (self.seed, epoch, lane, window, index)
                # the position may lie behind the window's last example: reading from there begins with the next window
                yield examples[index], key, Position(epoch, window, index + 1)
                last_epoch = epoch
            start = 0

    def _chunks(self, shards: np.ndarray, chunks_read: np.ndarray, window: int) -> list[tuple[int, int]]:
        """Return the (shard, chunk) pairs of a window; the arguments: a lane's shards, the chunks read after each."""
        number = np.arange(window * self.window, min((window + 1) * self.window, chunks_read[-1]))
        at = chunks_read.searchsorted(number, side="right")
        # a shard's first chunk is the number read at its end, less its own
        places = shards[at], number - chunks_read[at] + self.chunks[shards[at]]
        return list(zip(*(numbers.tolist() for numbers in places), strict=True))

    def _deal(self, epoch: int) -> np.ndarray:
        return keyed_rng("deal", self.seed, epoch).permutation(len(self.source.chunks))

    def _read(
        self, epoch: int, shard: int, chunk: int, skips: list[Skip]
    ) -> Iterator[tuple[tuple[int, int, int], Any]]:
        # a bad shard is skipped to its end: had it been repaired meanwhile, a resumed run would read other examples
        if chunk >= self.bad_from.get((epoch, shard), chunk + 1):
            return
        try:
            items = self.source.read(shard, chunk)
        except InputError as error:
            if not self.skip_bad or isinstance(error, CacheError):  # a full cache is no fault of the shard
                raise
            self.bad_from[epoch, shard] = chunk
            skips.append(Skip(self.number, epoch, shard, chunk, str(error)))
            return
        for number, item in enumerate(items):
            yield (shard, chunk, number), item
