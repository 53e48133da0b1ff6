"""Sort a list with a judge that orders only a few items at once: sliding windows, heapsort, bubble sort.

Each is a generator: it yields the items of a window, in their present order, is sent the same items, the best first,
and returns the whole list. So a caller can let the windows of many lists be judged together. Heapsort and bubble sort
take from a judgement only its best item, as in setwise ranking (Zhuang et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

import numpy as np

Sorting = Generator[list[int], list[int], list[int]]
Window = tuple[int, list[int]]  # the number of its list, its items


def slide(items: Sequence[int], size: int, stride: int) -> Sorting:
    """Sort windows of `size`, from the bottom up, each `stride` above the one before (Sun et al., 2023).

    The last one, at the top, may be smaller. The best size - stride items come first, in order.
    """
    order, end = list(items), len(items)
    while end > 1:
        start = max(0, end - size)
        order[start:end] = yield order[start:end]
        end = 0 if start == 0 else end - stride
    return order


def heapsort(items: Sequence[int], size: int, top: int) -> Sorting:
    """Take the `top` best from a heap whose nodes have size - 1 children; the others follow in their old order."""
    heap, top_items = list(items), list[int]()
    for node in reversed(range(_first_leaf(len(heap), size))):
        yield from _sift(heap, node, size)
    while heap and len(top_items) < top:
        top_items.append(heap[0])
        leaf = heap.pop()
        if heap:
            heap[0] = leaf
            if len(top_items) < top:
                yield from _sift(heap, 0, size)
    top_set = set(top_items)
    return [*top_items, *(item for item in items if item not in top_set)]


def bubble(items: Sequence[int], size: int, top: int) -> Sorting:
    """Let the best item rise to the top, `top` times, through windows of `size`; others may rise on the way."""
    order = list(items)
    for first in range(min(top, len(order) - 1)):
        end = len(order)
        while end - first > 1:
            start = max(first, end - size)
            best_item = (yield order[start:end])[0]
            order.remove(best_item)
            order.insert(start, best_item)
            end = start + 1
    return order


def most_windows(sorting: Sorting) -> int:
    """Return the most windows that a sorting can yield.

    Only heapsort's number depends on the answers: where the second item is always the best, all items sink along the
    first children to a leaf, and no path of a heap is longer.
    """
    count, window = 0, None
    with suppress(StopIteration):
        while True:
            window = sorting.send(window and [window[1], window[0], *window[2:]])  # type: ignore[arg-type]
            count += 1
    return count


def sort_together(
    sortings: Sequence[Sorting], judge: Callable[[Sequence[Window]], Sequence[list[int]]]
) -> list[list[int]]:
    """Sort several lists; `judge` orders at once a window of each that is not done."""
    orders: list[list[int]] = [[] for _ in sortings]
    answers: dict[int, list[int] | None] = dict.fromkeys(range(len(sortings)))
    while answers:
        windows: list[Window] = []
        for number, answer in answers.items():
            try:
                windows.append((number, sortings[number].send(answer)))  # type: ignore[arg-type]  # None starts it
            except StopIteration as stop:
                orders[number] = stop.value
        numbers = [number for number, _ in windows]
        answers = dict(zip(numbers, judge(windows), strict=True)) if windows else {}
    return orders


def central_order(orders: Sequence[Sequence[int]]) -> list[int]:
    """Return an order that differs little from all of some: the sum of their Kendall distances is a local minimum.

    It starts from the best of the orders and of their mean ranks (Borda), and moves single items while that helps; the
    least sum of all is Kemeny's order. Of equal ones the earlier is kept.
    """
    items = list(orders[0])
    ranks = np.array([[order.index(item) for item in items] for order in map(list, orders)])  # [m, n]
    precedence = (ranks[:, :, None] < ranks[:, None, :]).sum(axis=0)  # in how many orders item i is before item j
    borda = np.argsort(ranks.sum(axis=0), kind="stable").tolist()
    starts = [borda, *(np.argsort(order_ranks).tolist() for order_ranks in ranks)]
    # the fewest pairs of all orders reversed
    order = min(starts, key=lambda start: int(np.tril(precedence[np.ix_(start, start)], -1).sum()))
    moved = True
    while moved:
        moved = False
        for place in range(len(order)):
            gains = _gains(order, place, precedence)
            if (to := max(range(len(order)), key=gains.__getitem__)) != place and gains[to] > 0:
                order.insert(to, order.pop(place))
                moved = True
    return [items[i] for i in order]


def _gains(order: Sequence[int], place: int, precedence: np.ndarray) -> list[int]:
    """Return by how much the distance falls where the item at a place moves to each place."""
    item, gains = order[place], [0] * len(order)
    for to in range(place + 1, len(order)):
        gains[to] = gains[to - 1] + int(precedence[order[to], item] - precedence[item, order[to]])
    for to in reversed(range(place)):
        gains[to] = gains[to + 1] + int(precedence[item, order[to]] - precedence[order[to], item])
    return gains


def _first_leaf(number: int, size: int) -> int:  # the number of a heap's nodes that have children
    return 0 if number < 2 else (number - 2) // (size - 1) + 1


def _sift(heap: list[int], node: int, size: int) -> Generator[list[int], list[int], None]:
    """Move the item at a node down until it is the best of its window."""
    while node < _first_leaf(len(heap), size):
        children = range(node * (size - 1) + 1, min((node + 1) * (size - 1) + 1, len(heap)))
        best_item = (yield [heap[place] for place in (node, *children)])[0]
        if best_item == heap[node]:
            return
        below = next(place for place in children if heap[place] == best_item)
        heap[node], heap[below] = heap[below], heap[node]
        node = below
