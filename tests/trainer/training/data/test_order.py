"""The order of a run, and the cursor: a resumed run reads what the undisturbed one reads; random numbers by key."""

import json
from collections import Counter
from collections.abc import Collection
from itertools import islice
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deepsiam.data_prep.common.rng import keyed_rng, keyed_rngs
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import START
from deepsiam.trainer.training.data.order import Order, dropout_seed
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
