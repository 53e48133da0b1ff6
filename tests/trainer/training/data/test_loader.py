"""The loader: the same steps on any cluster, worker errors, and cursors that prefetching does not move."""

from collections import Counter
from itertools import islice

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.loader import Loader, check_layout
from deepsiam.trainer.training.data.order import LaneBatch, Order
from tests.trainer.training.data.integers import UNEVEN, items, lanes_of, order_of

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
