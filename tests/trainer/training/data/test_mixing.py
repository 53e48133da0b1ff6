"""Mixing: the weights hold at every micro-batch, and every lane reads from every source."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.common.errors import InputError
from trainer.training.data.mixing import Mix


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 5))
def test_no_source_is_ever_a_micro_batch_from_its_weight(weights: list[int], seed: int) -> None:
    mix, total = Mix(weights, seed), sum(weights)
    taken = [0] * len(weights)
    for t in range(1, 2 * mix.block + 2):
        taken[mix.source(t - 1)] += 1
        for count, weight in zip(taken, weights, strict=True):
            assert abs(count - Fraction(weight * t, total)) < 1


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


def test_weights_that_never_come_out_even_are_refused() -> None:
    with pytest.raises(InputError, match=r"data.mix: the weights 0.1234, 0.8766 .* fewer digits"):
        Mix([0.1234, 0.8766], 1)
