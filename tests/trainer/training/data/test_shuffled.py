"""Shuffled numbers: an array of few, a permutation of many that is computed where it is asked for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.training.data import shuffled as module
from deepsiam.trainer.training.data.shuffled import Shuffled, shuffled


def of(size: int, seed: int = 1) -> Shuffled:
    return Shuffled(size, keyed_rng("test", seed).integers(1 << 64, size=module.ROUNDS, dtype=np.uint64))


def test_few_are_an_array_and_many_are_not() -> None:
    few, many = (shuffled(size, "labels", 3) for size in (module.MOST, module.MOST + 1))
    np.testing.assert_array_equal(few, keyed_rng("labels", 3).permutation(module.MOST))
    assert isinstance(many, Shuffled)
    assert len(many) == module.MOST + 1
    found = many[np.arange(len(many))]
    assert len(np.unique(found)) == len(found)
    assert (found.min(), found.max()) == (0, module.MOST)
    np.testing.assert_array_equal(many[np.array([7, 70_000])], found[[7, 70_000]])
    assert (shuffled(len(many), "labels", 4)[np.arange(1000)] != found[:1000]).any()  # type: ignore[union-attr]


@given(st.integers(1, 3000), st.integers(0, 100))
def test_each_number_comes_once(size: int, seed: int) -> None:
    found = of(size, seed)[np.arange(size)]
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(size))


def test_the_order_looks_drawn_at_random() -> None:
    """Counts of independent pairs of numbers have a chi-square statistic near its degrees of freedom, 255."""
    size = 1 << 20
    found = of(size)[np.arange(size)]
    high = found >> 16  # 16 classes
    for near in (found[1:] >> 16, np.arange(1, size) >> 16, found[1:] & 15):  # a neighbour's, the place's, low bits
        table = np.histogram2d(high[:-1], near, bins=16)[0]
        expected = (size - 1) / 256
        assert 150 < ((table - expected) ** 2 / expected).sum() < 400
