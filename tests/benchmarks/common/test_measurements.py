"""A measurement is made once and kept on disk."""

import json
from pathlib import Path

import pytest

from benchmarks.common.measurements import Measurements


def test_a_value_is_measured_once_also_by_a_later_process(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    assert Measurements[list[float]](path).get("a", lambda: [0.5]) == [0.5]

    def again() -> list[float]:
        raise AssertionError("measured again")

    assert Measurements[list[float]](path).get("a", again) == [0.5]


def test_values_are_kept_when_a_later_measurement_fails(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    measurements = Measurements[float](path)
    measurements.get("a", lambda: 1.0)
    with pytest.raises(ZeroDivisionError):
        measurements.get("b", lambda: 1 / 0)
    assert json.loads(path.read_text()) == {"a": 1.0}
