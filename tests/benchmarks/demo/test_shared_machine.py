"""The turns of a command beside a busy process are compared with its turn alone, round by round."""

from benchmarks.demo.shared_machine import ALONE, BESIDE, SPINNING, summary


def test_ratios_are_of_each_round_and_of_all_commands_together() -> None:
    one = {ALONE: [1.0, 2.0], BESIDE: [2.0, 3.0], SPINNING: [4.0, 2.0]}
    other = {ALONE: [3.0, 2.0], BESIDE: [4.0, 3.0], SPINNING: [4.0, 6.0]}
    results = summary({"one": one, "other": other})
    assert results["one"][BESIDE] == {"min": 1.5, "median": 1.75, "max": 2.0}
    assert results["together"]["seconds"][SPINNING] == [8.0, 8.0]
    assert results["together"][BESIDE] == {"min": 1.5, "median": 1.5, "max": 1.5}
