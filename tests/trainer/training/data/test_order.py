"""The order of a run, its cursor and its loader: the same on any cluster, and after a resume; random numbers by key."""

import json
from collections import Counter
from collections.abc import Collection
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng, keyed_rngs
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import START
from deepsiam.trainer.training.data.loader import Loader, check_layout
from deepsiam.trainer.training.data.order import LaneBatch, Order, dropout_seed
from tests.trainer.training.data.integers import UNEVEN, items, lanes_of, order_of


def test_sources_are_drawn_by_weight_and_lanes_in_turn() -> None:
    order = order_of(lanes_of(UNEVEN), lanes_of([2] * 9, number=1), weights=(0.75, 0.25))
    batches = list(islice(order.stream(order.start(), 0, 1), 40))
    assert Counter(batch.source for batch in batches) == {0: 30, 1: 10}
    assert [batch.lane for batch in batches] == [i % 4 for i in range(40)]


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_resuming_from_recorded_positions_equals_never_stopping(
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
    cursor = TypeAdapter(Cursor).validate_json(json.dumps(cursor.to_json()))
    resumed = order(damaged)
    resumed.skip(cursor.skips)
    batches = islice(resumed.stream(cursor.positions, cursor.micro_batches, 1), 20)
    assert items(batches) == items(undisturbed[stop:])


def test_the_merged_cursor_has_every_rank_s_lanes() -> None:
    order = order_of(lanes_of(UNEVEN), lanes_of([2] * 9, number=1), weights=(0.75, 0.25))
    alone, ranks = Cursor(order.start()), [Cursor(order.start()) for _ in range(2)]
    for batch in islice(order.stream(order.start(), 0, 1), 20):
        alone.advance([batch], 1)
        ranks[batch.index % 2].advance([batch], 1)
    assert Cursor.merged(ranks).positions == alone.positions


def draws(rng: np.random.Generator) -> list[float]:
    """Draw with every call that the batchers use; an odd number of 32-bit draws leaves half a word in the generator."""
    choice = rng.choice(500, 75, replace=False, shuffle=False)
    return [*choice, *rng.random(3), rng.integers(2**16, dtype=np.uint32), *rng.integers(30_000, size=5)]


def test_a_re_keyed_generator_equals_a_new_one() -> None:
    keys = [(1, 2), (1, 3), (7, 0), (1, 2)]
    assert [draws(rng) for rng in keyed_rngs("example", keys)] == [draws(keyed_rng("example", *key)) for key in keys]


def test_every_purpose_and_key_has_its_own_numbers() -> None:
    keys = [("a", (1, 2)), ("b", (1, 2)), ("a", (2, 1)), ("a", ()), ("a", (1,))]
    seen = [draws(keyed_rng(purpose, *key)) for purpose, key in keys]
    assert all(first != second for number, first in enumerate(seen) for second in seen[:number])
    assert len({dropout_seed(1, i) for i in range(100)}) == 100


def test_numpy_s_global_seed_changes_nothing() -> None:
    before = draws(keyed_rng("a", 1, 2))
    np.random.seed(3)
    assert draws(keyed_rng("a", 1, 2)) == before


MIXED = [2] * 40 + UNEVEN


def first_of(order: Order, workers: int) -> LaneBatch:
    return next(Loader(order, 0, 1, workers).micro_batches(Cursor(order.start())))


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_a_step_has_the_same_examples_on_any_cluster(world_size: int, workers: int) -> None:
    """Two sources with uneven shards, over two epochs of the larger one and many of the smaller one."""

    def steps(world_size: int, workers: int) -> list[Counter[tuple[int, int]]]:
        order = order_of(lanes_of(MIXED, lanes=32), lanes_of([1] * 32, lanes=32, number=1), weights=(0.6, 0.4))
        cursor = Cursor(order.start())
        ranks = [Loader(order, rank, world_size, workers).micro_batches(cursor) for rank in range(world_size)]
        return [Counter(items(batch for rank in ranks for batch in islice(rank, 8 // world_size))) for _ in range(40)]

    assert steps(world_size, workers) == steps(1, 0)


def test_a_cursor_resumes_every_rank() -> None:
    order, cursor = order_of(lanes_of(UNEVEN)), Cursor([])
    cursor.positions = order.start()
    undisturbed = list(islice(order.stream(order.start(), 0, 1), 20))
    for batch in undisturbed[:8]:
        cursor.advance([batch], 1)
    ranks = [Loader(order, rank, 2, 0).micro_batches(cursor) for rank in range(2)]
    resumed = [batch for _ in range(6) for batch in (next(ranks[0]), next(ranks[1]))]
    assert items(resumed) == items(undisturbed[8:])


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_arrives_as_the_reader_raised_it(workers: int) -> None:
    order = order_of(lanes_of(UNEVEN, bad=[(s, 0) for s in range(9)]))
    with pytest.raises(InputError, match=r"^shard \d is damaged$"):
        first_of(order, workers)


def test_prefetched_batches_do_not_move_the_position() -> None:
    order = order_of(lanes_of([2] * 16, lanes=8))
    first = first_of(order, 2)  # the workers are far ahead by now
    again = first_of(order, 0)
    assert items([first]) == items([again])
    assert first.after == again.after


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ((8, 8, 3, 0), "data.lanes: 8 lanes cannot be shared by 3 ranks"),
        ((8, 3, 2, 0), "3 micro-batches a step cannot be shared by 2 ranks"),
        ((8, 8, 2, 3), "data.workers must divide 4"),
    ],
)
def test_an_uneven_layout_is_refused(layout: tuple[int, int, int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_layout(*layout)
    check_layout(8, 8, 2, 4)
