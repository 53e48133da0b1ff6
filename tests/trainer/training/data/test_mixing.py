"""Orders drawn at random: the sources of micro-batches, by their weights, and numbers too many for an array."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.training.data import shuffled as module
from deepsiam.trainer.training.data.mixing import Mix
from deepsiam.trainer.training.data.shuffled import Shuffled, shuffled


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


@pytest.mark.parametrize("weights", [[3.7], [7, 3], [0.1234, 0.8766], [9, 5, 2, 1, 1, 30, 17], MANY])
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
    in_fours = Mix([7, 3], 1, 4)  # turns of one source
    assert [in_fours.source(i) for i in range(1200)] == [forwards[i // 4] for i in range(1200)]


@pytest.mark.parametrize(("weights", "lanes"), [([0.75, 0.25], 4), ([0.5, 0.5], 8), ([0.8, 0.1, 0.1], 10)])
def test_every_lane_gets_every_source_though_the_period_divides_the_lanes(weights: list[float], lanes: int) -> None:
    mix = Mix(weights, 1)
    seen = Counter((i % lanes, mix.source(i)) for i in range(600 * lanes))
    for lane in range(lanes):
        for source, weight in enumerate(weights):
            assert seen[lane, source] / 600 == pytest.approx(weight, abs=0.08)


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


def shuffled_of(size: int, seed: int = 1) -> Shuffled:
    return Shuffled(size, keyed_rng("test", seed).integers(1 << 64, size=module.ROUNDS, dtype=np.uint64))


def test_few_are_an_array_and_many_are_not() -> None:
    few, many = (shuffled(size, "labels", 3) for size in (module.MOST_STORED, module.MOST_STORED + 1))
    np.testing.assert_array_equal(few, keyed_rng("labels", 3).permutation(module.MOST_STORED))
    assert isinstance(many, Shuffled)
    assert len(many) == module.MOST_STORED + 1
    found = many[np.arange(len(many))]
    assert len(np.unique(found)) == len(found)
    assert (found.min(), found.max()) == (0, module.MOST_STORED)
    np.testing.assert_array_equal(many[np.array([7, 70_000])], found[[7, 70_000]])
    assert (shuffled(len(many), "labels", 4)[np.arange(1000)] != found[:1000]).any()  # type: ignore[union-attr]


@given(st.integers(1, 3000), st.integers(0, 100))
def test_each_number_comes_once(size: int, seed: int) -> None:
    found = shuffled_of(size, seed)[np.arange(size)]
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(size))


def test_the_order_looks_drawn_at_random() -> None:
    """Counts of independent pairs of numbers have a chi-square statistic near its degrees of freedom, 255."""
    size = 1 << 20
    found = shuffled_of(size)[np.arange(size)]
    high = found >> 16  # 16 classes
    for near in (found[1:] >> 16, np.arange(1, size) >> 16, found[1:] & 15):  # a neighbour's, the place's, low bits
        table = np.histogram2d(high[:-1], near, bins=16)[0]
        expected = (size - 1) / 256
        assert 150 < ((table - expected) ** 2 / expected).sum() < 400
