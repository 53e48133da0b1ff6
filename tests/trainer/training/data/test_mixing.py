"""Mixing: the weights hold at every micro-batch, and every lane reads from every source."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.training.data.mixing import Mix


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 5))
def test_no_source_is_ever_a_micro_batch_from_its_weight(weights: list[int], seed: int) -> None:
    mix, total = Mix(weights, seed), sum(weights)
    taken = [0] * len(weights)
    for t in range(1, 2 * mix.block + 2):
        taken[mix.source(t - 1)] += 1
        for count, weight in zip(taken, weights, strict=True):
            assert abs(count - Fraction(weight * t, total)) < 1


def drawn_plainly(mix: Mix, block: int) -> list[int]:
    """The sources of a block: cycles of a dictionary of edges, each found from the place on, as the first runs did."""
    rng, graph = keyed_rng("mix", mix.seed, block), dict[Any, dict[Any, int]]()
    for source in sorted(range(len(mix.shares)), key=mix.shares.__getitem__):
        for place in range(mix.block):
            start, end = mix.shares[source] * place, mix.shares[source] * (place + 1)
            for number in range(start // mix.block, -(-end // mix.block)):
                amount = min(end, (number + 1) * mix.block) - max(start, number * mix.block)
                graph.setdefault(place, {})[source, number] = amount
                graph.setdefault((source, number), {})[place] = amount
    for place in range(mix.block):
        while len(graph[place]) > 1:
            path: list[Any] = [place]
            while path[-1] not in path[:-1]:
                path.append(next(node for node in graph[path[-1]] if node not in path[-2:-1]))
            cycle = path[path.index(path[-1]) :]
            edges = list(pairwise(cycle))
            up, down = (min(graph[a][b] for a, b in edges[odd::2]) for odd in (1, 0))
            change = up if rng.integers(up + down) < down else -down
            for number, (a, b) in enumerate(edges):
                graph[a][b] = graph[b][a] = graph[a][b] + (-change if number % 2 else change)
                if not graph[a][b]:
                    del graph[a][b], graph[b][a]
    return [turn[0] for place in range(mix.block) for turn in graph[place]]


MANY = [float(size) ** 0.5 for size in (10_000_000, 3_000_000, 500_000, 77_000, 3_000)]


@pytest.mark.parametrize("weights", [[1], [7, 3], [0.1234, 0.8766], [9, 5, 2, 1, 1, 30, 17], MANY])
def test_the_order_is_the_one_that_it_always_was(weights: list[float]) -> None:
    mix = Mix(weights, 3)
    for block in range(2):
        drawn = [mix.source(block * mix.block + place) for place in range(mix.block)]
        assert drawn == drawn_plainly(mix, block)


def test_the_order_is_a_pure_function_of_seed_and_number() -> None:
    forwards = [Mix([0.7, 0.3], 1).source(i) for i in range(300)]
    mix = Mix([7, 3], 1)
    assert [mix.source(i) for i in reversed(range(300))] == forwards[::-1]
    assert [Mix([0.7, 0.3], 2).source(i) for i in range(300)] != forwards


@pytest.mark.parametrize(("weights", "lanes"), [([0.75, 0.25], 4), ([0.5, 0.5], 8), ([0.8, 0.1, 0.1], 10)])
def test_every_lane_gets_every_source_though_the_period_divides_the_lanes(weights: list[float], lanes: int) -> None:
    mix = Mix(weights, 1)
    seen = Counter((i % lanes, mix.source(i)) for i in range(600 * lanes))
    for lane in range(lanes):
        for source, weight in enumerate(weights):
            assert seen[lane, source] / 600 == pytest.approx(weight, abs=0.08)


def test_one_source_needs_no_weights() -> None:
    assert {Mix([3.7], 1).source(i) for i in range(10)} == {0}


@pytest.mark.parametrize("weights", [[0.1234, 0.8766], [502_939, 87_599], [10_000_000**0.5, 3_000.0**0.5, 77.7]])
def test_weights_such_as_counts_are_rounded_to_thousandths(weights: list[float]) -> None:
    mix = Mix(weights, 1)
    assert mix.block == 1000
    for share, weight in zip(mix.shares, weights, strict=True):
        assert abs(share / 1000 - weight / sum(weights)) < 1e-3
    assert Counter(mix.source(i) for i in range(1000)) == dict(enumerate(mix.shares))


def test_a_source_that_would_never_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match=r"^data.mix: the weight 1 is too small a part of the sum of all, 10001: "):
        Mix([1, 10_000], 1)


@pytest.mark.parametrize("turn", [1, 4])
def test_what_is_drawn_is_counted_without_drawing_it(turn: int) -> None:
    mix, drawn = Mix([5, 2, 1], 3, turn), [0, 0, 0]
    for number in range(200):
        assert mix.drawn(number) == drawn
        drawn[mix.source(number)] += 1


def test_a_turn_is_of_one_source() -> None:
    mix, of_one = Mix([5, 2, 1], 3, 4), Mix([5, 2, 1], 3)
    assert [mix.source(i) for i in range(400)] == [of_one.source(i // 4) for i in range(400)]
