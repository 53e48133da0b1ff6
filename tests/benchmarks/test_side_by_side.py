"""Rivals take turns, and their ratios are of the same round."""

import json
from pathlib import Path

from benchmarks.side_by_side import alternate, in_words, ratios, write


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


def test_results_are_written_as_json(tmp_path: Path) -> None:
    write(tmp_path / "new" / "results.json", {"a": 1})
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == {"a": 1}
