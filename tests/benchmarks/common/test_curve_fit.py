"""Fits of laws to values that follow them exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.curve_fit import fit, slope

exponents = st.floats(0.5, 3.0)
factors = st.floats(1e-6, 1e3)


@given(exponents, factors, st.floats(0.01, 1000), st.integers(3, 8))
def test_a_power_law_is_found(exponent: float, factor: float, first: float, count: int) -> None:
    sizes = first * 2.0 ** np.arange(count)
    values = factor * sizes**exponent
    law = fit(sizes.tolist(), values.tolist())
    assert law.exponent == pytest.approx(exponent, abs=1e-3)
    assert law.at(sizes) == pytest.approx(values, rel=1e-3)
    assert slope(sizes.tolist(), values.tolist()) == pytest.approx(exponent, abs=1e-6)


@given(exponents, factors, st.floats(0.01, 3.0))
def test_a_fixed_part_is_told_from_what_grows(exponent: float, factor: float, share: float) -> None:
    sizes = np.array([4.0, 8, 16, 32, 64])
    fixed = share * factor * sizes[-1] ** exponent
    values = fixed + factor * sizes**exponent
    law = fit(sizes.tolist(), values.tolist())
    assert law.exponent == pytest.approx(exponent, abs=0.01)
    assert law.fixed == pytest.approx(fixed, rel=0.05, abs=0.01 * values[0])
    assert slope(sizes.tolist(), values.tolist()) < exponent


def test_what_does_not_grow_is_all_fixed() -> None:
    law = fit([1, 2, 4], [5.0, 5.0, 5.0])
    assert law.at(np.array([1.0, 4.0])) == pytest.approx([5.0, 5.0])


def test_no_part_is_negative() -> None:
    law = fit([1, 2, 4, 8], [4.0, 3.0, 2.0, 1.0])
    assert law.fixed > 0
    assert law.factor == 0
    concave = fit([1, 2, 4, 8], [0.01, 2.0, 4.0, 8.0])
    assert concave.fixed >= 0


def test_the_slope_is_that_of_the_upper_half() -> None:
    assert slope([1, 2, 4, 8], [7.0, 7.0, 10.0, 40.0]) == pytest.approx(2)
    assert slope([1, 2, 4], [1.0, 1.0, 8.0]) == pytest.approx(3)
