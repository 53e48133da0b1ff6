"""Sorting by judging a few items at once: the true top items with a perfect judge, and how many judgements that takes.

The central order is compared with all orders of short lists.
"""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from deepsiam.trainer.ranking.rankers.sorting import Sorting, bubble, central_order, heapsort, most_windows, slide

LISTS = st.integers(0, 60).flatmap(lambda n: st.permutations(range(n)))  # a smaller number is better


def judged(sorting: Sorting, *, most: int) -> tuple[list[int], int]:
    """The order that a perfect judge of at most so many items leads to, and how often it was asked."""
    asked, answer = 0, None
    while True:
        try:
            window = next(sorting) if answer is None else sorting.send(answer)
        except StopIteration as stop:
            return stop.value, asked
        assert 1 < len(window) <= most
        assert len({*window}) == len(window)
        asked, answer = asked + 1, sorted(window)


@given(items=LISTS, size=st.integers(2, 12), data=st.data())
def test_windows_put_the_best_first_and_lose_none(items: list[int], size: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, size - 1))
    order, asked = judged(slide(items, size, stride), most=size)
    assert sorted(order) == sorted(items)
    top = len(items) if len(items) <= size else size - stride
    assert order[:top] == [*range(min(top, len(items)))]
    if len(items) > size:  # one window at the bottom, and one for each stride of what is above it, also a part of one
        assert asked == 1 + -(-(len(items) - size) // stride)


@given(items=LISTS, size=st.integers(2, 12), top=st.integers(1, 70))
def test_heapsort_finds_the_top_and_leaves_the_rest_as_it_was(items: list[int], size: int, top: int) -> None:
    order, asked = judged(heapsort(items, size, top), most=size)
    assert order == [*range(min(top, len(items))), *(item for item in items if item >= top)]
    assert asked <= most_windows(heapsort(items, size, top))


def test_heapsort_takes_few_judgements() -> None:
    building = judged(heapsort(range(100), 4, 1), most=4)[1]
    assert building == 33  # one for each node with children, of a list that is in order
    assert 33 + 13 < most_windows(heapsort(range(100), 4, 10)) < 33 + 13 + 10 * 5
    assert most_windows(heapsort(range(20), 20, 1)) == 1
    assert most_windows(heapsort([7], 4, 10)) == most_windows(heapsort([], 4, 10)) == 0


@given(items=LISTS, size=st.integers(2, 12), top=st.integers(1, 70))
def test_bubbles_bring_up_the_top_and_lose_none(items: list[int], size: int, top: int) -> None:
    order, asked = judged(bubble(items, size, top), most=size)
    assert sorted(order) == sorted(items)
    assert order[:top] == [*range(min(top, len(items)))]
    passes = range(min(top, len(items) - 1))
    assert asked == sum(-(-(len(items) - done - 1) // (size - 1)) for done in passes)


def distance(order: list[int], other: list[int]) -> int:
    """Kendall's: the number of pairs in which two orders differ."""
    pairs = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :]]
    return sum(other.index(a) > other.index(b) for a, b in pairs)


@given(orders=st.integers(1, 6).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=1, max_size=5)))
def test_a_central_order_is_never_worse_than_a_given_one_and_nearly_the_best(orders: list[list[int]]) -> None:
    central = central_order(orders)
    assert sorted(central) == sorted(orders[0])

    def total(order: list[int]) -> int:
        return sum(distance(order, other) for other in orders)

    assert total(central) <= min(map(total, orders))
    assert total(central) <= min(total([*order]) for order in permutations(orders[0])) + 1
    for place in range(len(central)):  # no single move makes it better
        for to in range(len(central)):
            moved = [item for item in central if item != central[place]]
            moved.insert(to, central[place])
            assert total(moved) >= total(central)


def test_a_central_order_of_equal_ones_is_theirs_and_ties_keep_the_first() -> None:
    assert central_order([[3, 1, 2]] * 4) == [3, 1, 2]
    assert central_order([[1, 2], [2, 1]]) == [1, 2]
    assert central_order([[5, 7, 9], [7, 5, 9], [7, 9, 5]]) == [7, 5, 9]
