"""How benchmarks measure: rivals take turns, ratios are of one round, values are kept on disk, laws are fitted."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common import calibration, side_by_side
from benchmarks.common.curve_fit import fit, slope
from benchmarks.common.measurements import Measurements
from benchmarks.common.side_by_side import TooLongError, alternate, in_words, ratios, rounds, run_all


def test_rivals_take_turns_and_a_ratio_is_of_one_round() -> None:
    turns: list[str] = []

    def measure(name: str) -> float:
        turns.append(name)
        return float(len(turns))

    values = alternate({"a": lambda: measure("a"), "b": lambda: measure("b")}, 2)
    assert turns == ["a", "b", "a", "b"]
    assert values == {"a": [1, 3], "b": [2, 4]}
    compared = ratios([2, 30, 8], [1, 10, 2])
    assert compared == {"min": 2, "median": 3, "max": 4}
    assert in_words("speed", compared, "x").split() == ["speed", "3", "x", "(2", "to", "4)"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that stays at 0 until the test advances it."""
    now = [0.0]

    def move_on(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(side_by_side, "time", type(time)("time"))
    monkeypatch.setattr(side_by_side.time, "monotonic", lambda: now[0], raising=False)
    return move_on


def test_the_number_of_rounds_follows_from_the_first_and_too_little_time_is_said(
    clock: Callable[[float], None],
) -> None:
    def slow() -> float:
        clock(2.0)
        return 1.0

    assert rounds({"a": slow}, end=10.5) == {"a": [1.0] * 5}
    with pytest.raises(TooLongError, match="a round takes 2.0 s, and 3 s are left for 2 more"):
        rounds({"a": slow}, end=15.0)


def test_every_job_has_its_share_of_the_time_that_is_left(
    clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def job(seconds: float) -> dict[str, float]:
        clock(4.0)
        if seconds < 5:
            raise TooLongError("much too long")
        return {"share": seconds}

    results, skipped = run_all(
        {"a": job, "b": job, "c": job, "d": job}, 20.0, lambda name, result: [f"{name} {result}"]
    )
    assert results == {name: {"share": share} for name, share in (("a", 5.0), ("b", 16 / 3), ("c", 6.0), ("d", 8.0))}
    assert not skipped
    results, skipped = run_all({"e": job}, 20.0, lambda name, result: [])
    assert (results, skipped) == ({}, {"e": "much too long"})
    assert capsys.readouterr().out.splitlines()[-1].startswith("e: skipped: much too long")


def test_a_value_is_measured_once_and_kept_when_a_later_measurement_fails(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    measurements = Measurements[float](path)
    measurements.get("a", lambda: 0.5)
    with pytest.raises(ZeroDivisionError):
        measurements.get("b", lambda: 1 / 0)
    assert json.loads(path.read_text()) == {"a": 0.5}
    assert Measurements[float](path).get("a", lambda: 1 / 0) == 0.5


def test_a_cost_is_the_works_time_over_the_mean_of_two_calibrations(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([1.0, 6.0, 3.0])
    monkeypatch.setattr(calibration, "cpu_seconds", lambda work: next(spent))
    assert calibration.in_calibrations(lambda: None, lambda: None) == 3.0


@given(st.floats(0.5, 3.0), st.floats(1e-6, 1e3), st.one_of(st.just(0.0), st.floats(0.01, 3.0)))
def test_a_fixed_part_is_told_from_a_part_that_grows_by_a_power(exponent: float, factor: float, share: float) -> None:
    sizes = np.array([4.0, 8, 16, 32, 64])
    fixed = share * factor * sizes[-1] ** exponent
    values = fixed + factor * sizes**exponent
    law = fit(sizes.tolist(), values.tolist())
    assert law.exponent == pytest.approx(exponent, abs=0.01 if share else 1e-3)
    assert law.fixed == pytest.approx(fixed, rel=0.05, abs=0.01 * values[0])
    if share:
        assert slope(sizes.tolist(), values.tolist()) < exponent
    else:
        assert law.at(sizes) == pytest.approx(values, rel=1e-3)
        assert slope(sizes.tolist(), values.tolist()) == pytest.approx(exponent, abs=1e-6)


def test_no_part_of_a_law_is_negative() -> None:
    assert fit([1, 2, 4], [5.0, 5.0, 5.0]).at(np.array([1.0, 4.0])) == pytest.approx([5.0, 5.0])
    law = fit([1, 2, 4, 8], [4.0, 3.0, 2.0, 1.0])
    assert law.fixed > 0
    assert law.factor == 0
    assert fit([1, 2, 4, 8], [0.01, 2.0, 4.0, 8.0]).fixed >= 0


def test_the_slope_is_that_of_the_upper_half() -> None:
    assert slope([1, 2, 4, 8], [7.0, 7.0, 10.0, 40.0]) == pytest.approx(2)
    assert slope([1, 2, 4], [1.0, 1.0, 8.0]) == pytest.approx(3)
