"""Lanes: every item once an epoch, the same step on any cluster, positions that resume exactly."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.errors import InputError
from models.task import MicroBatch
from trainer.cursor import Cursor
from trainer.keyed import dropout_seed, keyed_rng
from trainer.lanes import START, Lanes, Position
from trainer.loader import check_layout, rank_micro_batches
from trainer.mixing import Mix
from trainer.order import Order


class Numbers:
    """Shards of chunks of distinct integers; those in `bad`, (shard, chunk), cannot be read."""

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

    def check_room(self, lanes: int) -> None:
        pass

    def name(self, shard: int, chunk: int, item: int) -> str:
        return str(shard * 1000 + chunk * 100 + item)


class Echo:
    """The items as they are, each beside a random number of its own."""

    def examples(self, documents: Sequence[Any]) -> list[Any]:
        return list(documents)

    def origins(self, documents: Sequence[Any]) -> list[list[int]]:
        return [[i] for i in range(len(documents))]

    def micro_batch(self, examples: Sequence[Any], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        numbers = [(example, int(rng.integers(2**31))) for example, rng in zip(examples, rngs, strict=True)]
        return MicroBatch({"items": np.array(numbers)}, {"loss": len(examples)})


def lanes_of(chunks: Sequence[int], lanes: int = 4, window: int = 2, micro_batch: int = 4, **more: Any) -> Lanes:
    bad = more.pop("bad", ())
    return Lanes(Numbers(chunks, bad=bad), Echo(), seed=7, lanes=lanes, window=window, micro_batch=micro_batch, **more)


def order_of(*lanes: Lanes, weights: Sequence[float] = (1,)) -> Order:
    return Order({f"s{number}": some for number, some in enumerate(lanes)}, Mix(weights, 3))


def items(batches: Any) -> list[tuple[int, int]]:
    return [tuple(item) for batch in batches for item in batch.micro_batch.arrays["items"].tolist()]


UNEVEN = [1, 3, 2, 5, 1, 1, 4, 2, 2]
EVERYTHING = {s * 1000 + c * 100 + i for s, chunks in enumerate(UNEVEN) for c in range(chunks) for i in range(3)}


def epochs(lanes: Lanes, count: int) -> Counter[tuple[int, int]]:
    """How often (epoch, item) is read by all lanes of a source, micro-batches of one."""
    seen: Counter[tuple[int, int]] = Counter()
    for lane in range(lanes.lanes):
        for step in lanes.micro_batches(lane, START):
            if step.after.epoch == count:
                break
            seen[(step.after.epoch, int(step.micro_batch.arrays["items"][0][0]))] += 1
    return seen


def test_a_lane_reads_every_item_of_its_shards_once_an_epoch() -> None:
    seen = epochs(lanes_of(UNEVEN, micro_batch=1), 3)
    for epoch in range(3):
        assert {item for e, item in seen if e == epoch} == EVERYTHING
    assert set(seen.values()) == {1}


def test_epochs_differ_in_order_and_in_the_deal() -> None:
    lanes = lanes_of(UNEVEN)
    assert lanes._chunks(0, 0) != lanes._chunks(0, 1)
    assert items_of_epoch(lanes, 0) != items_of_epoch(lanes, 1)


def items_of_epoch(lanes: Lanes, epoch: int) -> list[int]:
    steps = lanes.micro_batches(0, Position(epoch, 0, 0))
    return [int(x) for step in islice(steps, 2) for x, _ in step.micro_batch.arrays["items"]]


MIXED = [2] * 40 + UNEVEN


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_a_step_holds_the_same_examples_on_any_cluster(world_size: int, workers: int) -> None:
    """Of two sources of uneven shards, over two epochs of the larger and many of the smaller."""

    def steps(world_size: int, workers: int) -> list[Counter[tuple[int, int]]]:
        order = order_of(lanes_of(MIXED, lanes=32), lanes_of([1] * 32, lanes=32, number=1), weights=(0.6, 0.4))
        ranks = [rank_micro_batches(order, order.start(), 0, r, world_size, workers) for r in range(world_size)]
        return [Counter(items(batch for rank in ranks for batch in islice(rank, 8 // world_size))) for _ in range(40)]

    assert steps(world_size, workers) == steps(1, 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_going_on_from_recorded_positions_equals_never_stopping(
    stop: int, lanes: int, window: int, micro_batch: int, bad: bool
) -> None:
    shape: dict[str, Any] = {"lanes": lanes, "window": window, "micro_batch": micro_batch, "skip_bad": True}

    def order(damaged: Collection[tuple[int, int]]) -> Order:
        sources = lanes_of(UNEVEN, bad=damaged, **shape), lanes_of(UNEVEN[::-1], number=1, **shape)
        return order_of(*sources, weights=(3, 1))

    damaged = [(3, 2), (6, 0)] if bad else []
    cursor = Cursor([[START] * lanes, [START] * lanes])
    undisturbed = list(islice(order(damaged).stream(cursor.positions, 0, 1), stop + 20))
    for batch in undisturbed[:stop]:
        cursor.advance([batch], 1)
        cursor.skips.update(batch.skips)
    cursor = Cursor.from_json(json.loads(json.dumps(cursor.to_json())))
    again = order(damaged)
    again.skip(cursor.skips)
    resumed = islice(again.stream(cursor.positions, cursor.micro_batches, 1), 20)
    assert items(resumed) == items(undisturbed[stop:])


def test_what_was_skipped_stays_skipped_though_it_is_repaired() -> None:
    broken = lanes_of(UNEVEN, bad=[(3, 2)], skip_bad=True, micro_batch=1)
    steps = [step for lane in range(4) for step in islice(broken.micro_batches(lane, START), 40)]
    skips = {skip for step in steps for skip in step.skips}
    assert {(skip.shard, skip.chunk, skip.reason) for skip in skips} == {(3, 2, "shard 3 is damaged")}
    repaired = lanes_of(UNEVEN, micro_batch=1)
    repaired.skip(skips)
    assert items(steps) == items(step for lane in range(4) for step in islice(repaired.micro_batches(lane, START), 40))


def test_a_skipped_shard_costs_its_rest_and_nothing_else() -> None:
    seen = epochs(lanes_of(UNEVEN, bad=[(3, 2)], skip_bad=True, micro_batch=1), 1)
    lost = {3000 + chunk * 100 + i for chunk in (2, 3, 4) for i in range(3)}
    assert {item for _, item in seen} == EVERYTHING - lost


def test_a_bad_shard_ends_the_lane_unless_it_may_be_skipped() -> None:
    with pytest.raises(InputError, match="shard 3 is damaged"):
        epochs(lanes_of(UNEVEN, bad=[(3, 2)], micro_batch=1), 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_error_of_a_loader_worker_is_the_readers_own(workers: int) -> None:
    order = order_of(lanes_of(UNEVEN, bad=[(s, 0) for s in range(9)]))
    with pytest.raises(InputError, match=r"^shard \d is damaged$"):
        next(rank_micro_batches(order, order.start(), 0, 0, 1, workers))


def test_prefetched_batches_do_not_move_the_position() -> None:
    order = order_of(lanes_of([2] * 16, lanes=8))
    first = next(rank_micro_batches(order, order.start(), 0, 0, 1, 2))  # the workers are far ahead by now
    again = next(rank_micro_batches(order, order.start(), 0, 0, 1, 0))
    assert items([first]) == items([again])
    assert first.after == again.after


def test_every_example_is_traced_to_its_documents() -> None:
    order = order_of(lanes_of(UNEVEN), lanes_of(UNEVEN, number=1), weights=(1, 1))
    for batch in islice(order.stream(order.start(), 0, 1), 60):
        assert order.origins(batch) == [[str(item)] for item, _ in items([batch])]


def test_sources_are_drawn_by_weight_and_lanes_by_turn() -> None:
    order = order_of(lanes_of(UNEVEN), lanes_of([2] * 9, number=1), weights=(0.75, 0.25))
    batches = list(islice(order.stream(order.start(), 0, 1), 40))
    assert Counter(batch.source for batch in batches) == {0: 30, 1: 10}
    assert [batch.lane for batch in batches] == [i % 4 for i in range(40)]


def test_a_cursor_of_all_ranks_holds_every_lane() -> None:
    order = order_of(lanes_of(UNEVEN), lanes_of([2] * 9, number=1), weights=(0.75, 0.25))
    alone, ranks = Cursor(order.start()), [Cursor(order.start()) for _ in range(2)]
    for batch in islice(order.stream(order.start(), 0, 1), 20):
        alone.advance([batch], 1)
        ranks[batch.index % 2].advance([batch], 1)
    assert Cursor.merged(ranks).positions == alone.positions


def test_fewer_shards_than_lanes_are_refused() -> None:
    with pytest.raises(InputError, match="data.lanes: 4 lanes need at least 4 shards, .* the data has 3: "):
        lanes_of([1, 1, 1])


def test_a_lane_without_text_is_refused_rather_than_searched_for_ever() -> None:
    empty = Lanes(Numbers([1, 1], per_chunk=0), Echo(), seed=1, lanes=2, window=1, micro_batch=1)
    with pytest.raises(InputError, match="lane 1, epochs 0 to 10"):
        next(empty.micro_batches(1, START))


class Choosy(Echo):
    def examples(self, documents: Sequence[Any]) -> list[Any]:
        raise ValueError("needs sentence boundaries")


@pytest.mark.parametrize("workers", [0, 1])
def test_data_that_will_not_do_for_the_method_are_refused_in_a_line(workers: int) -> None:
    order = order_of(Lanes(Numbers([1] * 4), Choosy(), seed=1, lanes=4, window=1, micro_batch=1))
    with pytest.raises(InputError, match="^method: needs sentence boundaries$"):
        next(rank_micro_batches(order, order.start(), 0, 0, 1, workers))


@pytest.mark.parametrize(
    ("layout", "word"),
    [
        ((8, 8, 3, 0), "data.lanes: 8 lanes cannot be shared by 3 ranks"),
        ((8, 3, 2, 0), "3 micro-batches a step cannot be shared by 2 ranks"),
        ((8, 8, 2, 3), "data.workers must divide 4"),
    ],
)
def test_an_uneven_layout_is_refused(layout: tuple[int, int, int, int], word: str) -> None:
    with pytest.raises(InputError, match=word):
        check_layout(*layout)
    check_layout(8, 8, 2, 4)


def test_keyed_randomness_depends_on_purpose_and_key_alone() -> None:
    draws = {(p, k): keyed_rng(p, *k).integers(2**60) for p in ("a", "b") for k in ((1, 2), (2, 1), (1,))}
    assert len(set(draws.values())) == len(draws)
    np.random.seed(3)
    assert keyed_rng("a", 1, 2).integers(2**60) == draws[("a", (1, 2))]
    assert len({dropout_seed(1, i) for i in range(100)}) == 100
