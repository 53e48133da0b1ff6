"""The predicted steps: the committed table is whole, and today's code makes one of its rows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.step.roofline import CASES, PARTS, RESULTS, draw, table
from tests.fake_gpu.counts import needs_fake_gpu
from tests.toy import ROOT


def committed() -> Any:
    return json.loads(RESULTS.read_text())


@pytest.mark.parametrize("label", ["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_the_parts_of_a_step_add_up(label: str, case: str) -> None:
    one = committed()[label][case]
    assert list(one["parts"]) == list(PARTS)
    assert sum(one["parts"].values()) == pytest.approx(one["milliseconds"], abs=0.05)
    assert one["share_of_peak"] == pytest.approx(one["tflop"] / one["milliseconds"] / 0.989, rel=0.01)
    assert f"{one['kernels']:6} kernels" in table({label: {case: one}})


def test_the_parts_are_drawn(tmp_path: Path) -> None:
    draw(committed(), tmp_path / "parts.png")
    assert (tmp_path / "parts.png").stat().st_size > 10_000


@needs_fake_gpu
@pytest.mark.slow
def test_today_s_code_makes_the_committed_row(tmp_path: Path) -> None:
    out = tmp_path / "now.json"
    command = [sys.executable, "-m", "benchmarks.step.roofline", "--label", "after", "--cases", "siamese-32"]
    done = subprocess.run([*command, "--out", out], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    now, then = json.loads(out.read_text())["after"]["siamese-32"], committed()["after"]["siamese-32"]
    assert now == then, "count the steps anew: python -m benchmarks.step.roofline --label after"
