"""The cost curves, at sizes that take milliseconds: all work is measured, fitted, written and drawn."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.common import made_up_shards, side_by_side
from benchmarks.costs import curve_cases, curves
from benchmarks.costs.curve_cases import CURVES

TINY = {
    "length": (16, 32, 64),
    "decoder": (8, 16, 32),
    "window": (2, 4, 8),
    "vocabulary": (100, 200, 400),
    "special-tokens": (1, 2, 4),
    "M": (8, 16, 24),
    "group": (64, 128, 256),
    "preparation": (0.01, 0.02, 0.04),
    "resume": (1, 2, 4),
}


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command set the threads of this process, and restore them after the test."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    for name, sizes in TINY.items():
        monkeypatch.setitem(CURVES, name, replace(CURVES[name], sizes=sizes))
    monkeypatch.setattr(curve_cases, "RESUMED_SHARDS", 1)
    monkeypatch.setattr(curve_cases, "CHUNKS_PER_SHARD", 1)
    monkeypatch.setattr(made_up_shards, "CHUNKS_PER_SHARD", 1)
    monkeypatch.setattr(made_up_shards, "MICRO_BATCH", 2)
    monkeypatch.setattr(curve_cases, "LONG", ())
    monkeypatch.setattr(side_by_side, "MOST_ROUNDS", 3)


def test_the_command_measures_fits_writes_and_draws(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "curves.json"
    curves.main(["--minutes", "1000", "--out", str(out)])
    written = json.loads(out.read_text())
    assert written["skipped"] == {}
    assert written["curves"].keys() == CURVES.keys()
    for name, curve in written["curves"].items():
        assert curve["sizes"] == list(TINY[name])
        assert curve["rounds"] == 3
        assert all(0 < seconds["min"] <= seconds["median"] <= seconds["max"] for seconds in curve["seconds"])
        assert curve["exponents"].keys() == {"min", "median", "max"}
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "window: exponent " in capsys.readouterr().out


def test_the_law_of_a_curve_is_fitted_to_the_medians_and_its_range_is_that_of_the_rounds() -> None:
    rounds = [[n**e for n in (2, 4, 8, 16)] for e in (1.0, 1.1, 1.5)]
    values = {str(n): list(by_round) for n, by_round in zip((2, 4, 8, 16), zip(*rounds, strict=True), strict=True)}
    result = curves.in_numbers(replace(CURVES["length"], sizes=(2, 4, 8, 16)), values)
    assert result["law"]["exponent"] == pytest.approx(1.1, abs=1e-3)
    assert result["exponents"]["min"] == pytest.approx(1.0, abs=1e-3)
    assert result["exponents"]["max"] == pytest.approx(1.5, abs=1e-3)
    assert result["slope"] == pytest.approx(1.1)
    assert list(curves.lines_of("length", result))[-1].startswith(
        "length: exponent 1.10 (1.00 to 1.50), expected 1 to 2"
    )
