"""Rivals take turns, and ratios compare rivals within one round."""

import time
from collections.abc import Callable

import pytest

from benchmarks.common import side_by_side
from benchmarks.common.side_by_side import TooLongError, alternate, in_words, ratios, rounds, run_all


def test_rivals_take_turns() -> None:
    turns: list[str] = []

    def measure(name: str) -> float:
        turns.append(name)
        return float(len(turns))

    values = alternate({"a": lambda: measure("a"), "b": lambda: measure("b")}, 2)
    assert turns == ["a", "b", "a", "b"]
    assert values == {"a": [1, 3], "b": [2, 4]}


def test_a_ratio_is_of_one_round() -> None:
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

    results, skipped = run_all({"a": job, "b": job, "c": job}, 18.0, lambda name, result: [f"{name} {result}"])
    assert results == {"a": {"share": 6.0}, "b": {"share": 7.0}, "c": {"share": 10.0}}
    assert not skipped
    results, skipped = run_all({"d": job}, 13.0, lambda name, result: [])
    assert (results, skipped) == ({}, {"d": "much too long"})
    assert capsys.readouterr().out.splitlines()[-1].startswith("d: skipped: much too long")
