"""The order of a run, and the cursor: a resumed run reads what the undisturbed run would have read."""

import json
from collections import Counter
from collections.abc import Collection
from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import START
from deepsiam.trainer.training.data.order import Order
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
