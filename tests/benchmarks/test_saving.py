"""The checkpoint benchmark measures saving and loading."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toy


@pytest.mark.slow
def test_it_writes_the_seconds_and_ratios_of_both(tmp_path: Path) -> None:
    options = ["--hidden", "64", "--layers", "2", "--rounds", "2", "--out", str(tmp_path / "out.json")]
    command = [sys.executable, "-m", "benchmarks.saving", *options]
    environment = {**toy.environment(), "MASTER_PORT": str(toy.free_port())}
    done = subprocess.run(command, cwd=toy.ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out.json").read_text())
    for what in ("save", "load"):
        assert {name: len(values) for name, values in results[what]["seconds"].items()} == {"deepsiam": 2, "torch": 2}
        assert results[what]["deepsiam / torch"]["median"] > 0
