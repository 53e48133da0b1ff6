"""The checkpoint benchmark measures saving and loading."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scaling import saving
from benchmarks.scaling.start_up import HERE, THERE
from tests import toy


@pytest.mark.slow
def test_it_writes_the_seconds_and_ratios_of_both(tmp_path: Path) -> None:
    options = ["--hidden", "64", "--layers", "2", "--rounds", "2", "--out", str(tmp_path / "out.json")]
    command = [sys.executable, "-m", "benchmarks.scaling.saving", *options]
    environment = {**toy.environment(), "MASTER_PORT": str(toy.free_port())}
    done = subprocess.run(command, cwd=toy.ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out.json").read_text())
    for what in ("save", "load"):
        assert {name: len(values) for name, values in results[what]["seconds"].items()} == {"deepsiam": 2, "torch": 2}
        assert results[what]["deepsiam / torch"]["median"] > 0


def test_two_codes_are_compared_within_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports of the two checkouts are made up: the second round takes twice as long."""
    asked = []

    def report(code: Path, sizes: list[str]) -> dict[str, Any]:
        asked.append(code.name)
        seconds = 1.0 if len(asked) <= 2 else 2.0
        own = {"deepsiam": [seconds * (2 if code.name == "here" else 8)], "torch": [seconds]}
        return {"bytes": 10, "save": {"seconds": own}, "load": {"seconds": own}}

    monkeypatch.setattr(saving, "measure_code", report)
    results = saving.measure_codes(Path("here"), Path("there"), 2, [])
    assert asked == ["here", "there"] * 2
    for what in ("save", "load"):
        assert results[what]["seconds"][HERE] == [2.0, 4.0]
        assert results[what][f"{HERE} / torch beside {HERE}"]["median"] == 2.0
        assert results[what][f"{THERE} / torch beside {THERE}"]["median"] == 8.0
        assert results[what][f"{HERE} / {THERE}"] == {"min": 0.25, "median": 0.25, "max": 0.25}
