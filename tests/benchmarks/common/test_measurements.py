"""A measurement is made once and kept on disk."""

from pathlib import Path

from benchmarks.common.measurements import Measurements


def test_a_value_is_measured_once_also_by_a_later_process(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    assert Measurements[list[float]](path).get("a", lambda: [0.5]) == [0.5]

    def again() -> list[float]:
        raise AssertionError("measured again")

    assert Measurements[list[float]](path).get("a", again) == [0.5]
