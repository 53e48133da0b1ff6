"""A cache that is large enough for the check holds all that is ever open at once."""

import re
from collections.abc import Iterator
from itertools import permutations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.data.lanes import Lanes
from deepsiam.trainer.training.data.opened import HeldOut, check_cache_room, most_in_a_window
from deepsiam.trainer.training.data.order import Order
from tests.trainer.training.data.integers import Echo, Numbers, lanes_of, order_of

CHUNKS = st.lists(st.integers(1, 6), min_size=4, max_size=8)


class Cached(Numbers):
    """Shards of as many bytes as chunks, as one rank has them; `open` are those that it has read and not released."""

    def __init__(self, chunks: list[int], number: int = 0) -> None:
        super().__init__(chunks)
        self.number, self.open = number, set[int]()
        self.beside, self.most = [self], 0  # all sources of all ranks of the host; the most bytes ever open, of all

    def read(self, shard: int, chunk: int) -> list[int]:
        self.open.add(shard)
        cached = {(source.number, i): source.chunks[i] for source in self.beside for i in source.open}
        self.most = max(self.most, sum(cached.values()))
        return super().read(shard, chunk)

    def release(self, shard: int) -> None:
        self.open.remove(shard)

    def cached_bytes(self, shards: int) -> int:
        return sum(sorted(self.chunks)[-shards:])


def needed(order: Order, *held_out: HeldOut, **world: int) -> int:
    """Return what the message says; it is accepted."""
    with pytest.raises(InputError, match="lanes of a host.* keep open at once") as refused:
        check_cache_room(order, held_out, 0, **world)
    (found,) = re.findall(r"set at least (\d+),", str(refused.value))
    check_cache_room(order, held_out, int(found), **world)
    return int(found)


def lanes_over(source: Cached, window: int, number: int = 0) -> Lanes:
    made = lanes_of(source.chunks, window=window, number=number)
    made.source = source
    return made


@given(CHUNKS, CHUNKS, CHUNKS, st.integers(1, 9), st.integers(1, 2))
def test_what_fits_the_check_is_never_exceeded(
    first: list[int], second: list[int], validation: list[int], window: int, ranks: int
) -> None:
    def rank() -> tuple[Order, HeldOut, list[Cached]]:
        sources = [Cached(chunks, number) for number, chunks in enumerate([first, second, validation])]
        order = order_of(lanes_over(sources[0], window), lanes_over(sources[1], window, 1), weights=(0.5, 0.5))
        return order, HeldOut(sources[2], Echo(), seed=1, window=window, micro_batch=2), sources

    host = [rank() for _ in range(ranks)]
    every = [source for _, _, sources in host for source in sources]
    for source in every:
        source.beside = every
    limit = needed(*host[0][:2], world_size=ranks, local_size=ranks, workers=0)
    streams = [order.stream(order.start(), i, ranks) for i, (order, _, _) in enumerate(host)]
    for _ in range(4):
        for _, stream in product(range(12), streams):
            next(stream)
        validating: list[Iterator[object]] = [part.micro_batches(i, ranks) for i, (_, part, _) in enumerate(host)]
        while validating:  # the ranks in turn
            validating = [each for each in validating if next(each, None) is not None]
    assert max(source.most for source in every) <= limit


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 8))
@example([1, 1, 1], 3)
def test_the_most_shards_in_a_window_are_those_of_the_worst_order(chunks: list[int], window: int) -> None:
    def touched(order: tuple[int, ...]) -> int:
        shards = [shard for shard, count in enumerate(order) for _ in range(count)]
        return max(len(set(shards[start : start + window])) for start in range(len(shards)))

    assert most_in_a_window(chunks, window) == max(map(touched, set(permutations(chunks))))


def test_each_host_needs_room_for_its_own_lanes_and_readers() -> None:
    order = order_of(lanes_over(Cached([4] * 20), window=4), weights=(1.0,))

    assert needed(order, world_size=4, local_size=4, workers=0) == 4 * (4 + 4)  # a window can touch two shards
    assert needed(order, world_size=4, local_size=2, workers=0) == 4 * (2 + 2)
    assert needed(order, world_size=2, local_size=1, workers=2) == 4 * (2 + 2)
