"""Lanes: every item once an epoch, the same step on any cluster, positions that resume exactly."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.errors import InputError
from models.task import MicroBatch
from trainer.lanes import START, LaneOrder, Position, dropout_seed, keyed_rng, stream
from trainer.loader import check_layout, rank_micro_batches


class Numbers:
    """Shards of chunks of distinct integers."""

    def __init__(self, chunks: Sequence[int], per_chunk: int = 3):
        self.chunks, self.per_chunk = list(chunks), per_chunk

    def read(self, shard: int, chunk: int) -> list[int]:
        return [shard * 1000 + chunk * 100 + i for i in range(self.per_chunk)]


class Echo:
    """The items as they are, each beside a random number of its own."""

    def examples(self, documents: Sequence[Any]) -> list[Any]:
        return list(documents)

    def micro_batch(self, examples: Sequence[Any], rngs: Sequence[np.random.Generator]) -> MicroBatch:
        numbers = [(example, int(rng.integers(2**31))) for example, rng in zip(examples, rngs, strict=True)]
        return MicroBatch({"items": np.array(numbers)}, {"loss": len(examples)})


def order(chunks: Sequence[int], lanes: int = 4, window: int = 2, micro_batch: int = 4, seed: int = 7) -> LaneOrder:
    return LaneOrder(Numbers(chunks), Echo(), seed=seed, lanes=lanes, window=window, micro_batch=micro_batch)


def items(batches: Any) -> list[tuple[int, int]]:
    return [tuple(item) for batch in batches for item in batch.micro_batch.arrays["items"].tolist()]


UNEVEN = [1, 3, 2, 5, 1, 1, 4, 2, 2]


def test_a_lane_reads_every_item_of_its_shards_once_an_epoch() -> None:
    lanes = order(UNEVEN, micro_batch=1)
    seen: Counter[tuple[int, int]] = Counter()
    for lane in range(4):
        for micro_batch, after in lanes.micro_batches(lane, START):
            if after.epoch == 3:
                break
            seen[(after.epoch, int(micro_batch.arrays["items"][0][0]))] += 1
    everything = {s * 1000 + c * 100 + i for s, chunks in enumerate(UNEVEN) for c in range(chunks) for i in range(3)}
    for epoch in range(3):
        assert {item for e, item in seen if e == epoch} == everything
    assert set(seen.values()) == {1}


def test_epochs_differ_in_order_and_in_the_deal() -> None:
    lanes = order(UNEVEN)
    assert lanes._chunks(0, 0) != lanes._chunks(0, 1)
    assert items_of_epoch(lanes, 0) != items_of_epoch(lanes, 1)


def items_of_epoch(lanes: LaneOrder, epoch: int) -> list[int]:
    batches = (m for m, after in lanes.micro_batches(0, Position(epoch, 0, 0)))
    return [int(x) for m in islice(batches, 2) for x, _ in m.arrays["items"]]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_a_step_holds_the_same_examples_on_any_cluster(world_size: int, workers: int) -> None:
    def steps(world_size: int, workers: int) -> list[Counter[tuple[int, int]]]:
        lanes = order([2] * 40 + UNEVEN, lanes=16)
        ranks = [rank_micro_batches(lanes, [START] * 16, 0, r, world_size, workers) for r in range(world_size)]
        return [Counter(items(batch for rank in ranks for batch in islice(rank, 8 // world_size))) for _ in range(12)]

    assert steps(world_size, workers) == steps(1, 0)


@settings(max_examples=30)
@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7))
def test_going_on_from_recorded_positions_equals_never_stopping(
    stop: int, lanes: int, window: int, micro_batch: int
) -> None:
    full = order(UNEVEN, lanes=lanes, window=window, micro_batch=micro_batch)
    positions = [START] * lanes
    undisturbed = list(islice(stream(full, positions, 0, 1), stop + 20))
    for batch in undisturbed[:stop]:
        positions[batch.lane] = batch.after
    resumed = islice(stream(full, positions, stop, 1), 20)
    assert items(resumed) == items(undisturbed[stop:])


def test_prefetched_batches_do_not_move_the_position() -> None:
    lanes = order([2] * 16, lanes=8)
    batches = rank_micro_batches(lanes, [START] * 8, 0, 0, 1, 2)
    first = next(batches)  # the workers are far ahead by now
    again = next(rank_micro_batches(lanes, [START] * 8, 0, 0, 1, 0))
    assert items([first]) == items([again])
    assert first.after == again.after


def test_fewer_shards_than_lanes_are_refused() -> None:
    with pytest.raises(InputError, match="data.lanes: 4 lanes need at least 4 shards, the data has 3"):
        order([1, 1, 1])


def test_a_lane_without_text_is_refused_rather_than_searched_for_ever() -> None:
    empty = LaneOrder(Numbers([1, 1], per_chunk=0), Echo(), seed=1, lanes=2, window=1, micro_batch=1)
    with pytest.raises(InputError, match="lane 1, epoch 0"):
        next(empty.micro_batches(1, START))


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
