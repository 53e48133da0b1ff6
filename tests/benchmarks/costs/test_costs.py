"""The costs: curves and pieces, tiny, are measured and written; laws are fitted to medians; verdicts need a gap."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks.common import calibration, made_up_shards, side_by_side
from benchmarks.costs import curve_cases, curves, pieces, quick, quick_pieces
from benchmarks.costs.curve_cases import CURVES
from benchmarks.costs.quick import Spread, verdict
from benchmarks.costs.quick_pieces import STEPS, PieceSizes
from tests import toy

SIZES = {
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
TRUNK = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 200}
PIECES = PieceSizes(
    changes=(*(f"trunk.{key}={value}" for key, value in TRUNK.items()), "batch.size=4", "batch.micro=2"),
    megabytes=0.02,
    tokens=150_000,
    micro_batches=2,
    verified=1,
    pool=50,
)
SMALL: dict[ModuleType, dict[str, int]] = {
    curve_cases: {"RESUMED_SHARDS": 1, "CHUNKS_PER_SHARD": 1},
    made_up_shards: {"CHUNKS_PER_SHARD": 1, "MICRO_BATCH": 2, "MAX_TOKENS": 64, "VOCABULARY": 300},
    pieces: {"WORDS": 300, "VOCABULARY": 300, "TRAINED_ON": 20},
    quick_pieces: {"QUERIES": 8, "VOCABULARY": 300},
    calibration: {"WORDS": 20_000, "SIDE": 64, "LONG": 1 << 12},
    side_by_side: {"MOST_ROUNDS": 3},
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make everything small; the commands may set the threads of this process."""
    for name, sizes in SIZES.items():
        monkeypatch.setitem(CURVES, name, replace(CURVES[name], sizes=sizes))
    for module, numbers in SMALL.items():
        for name, number in numbers.items():
            monkeypatch.setattr(module, name, number)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    calibration._operands.cache_clear()
    yield
    calibration._operands.cache_clear()


def test_curves_are_measured_fitted_written_and_drawn(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "curves.json"
    names = SIZES if toy.FULL_TESTS else ("decoder", "preparation", "resume")  # one of each kind of work
    curves.main(["--minutes", "1000", "--out", str(out), "--curves", *names])
    written = json.loads(out.read_text())
    assert written["skipped"] == {}
    assert {name: tuple(curve["sizes"]) for name, curve in written["curves"].items()} == {n: SIZES[n] for n in names}
    for curve in written["curves"].values():
        assert curve["rounds"] == 3
        assert all(0 < seconds["min"] <= seconds["median"] <= seconds["max"] for seconds in curve["seconds"])
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "decoder: exponent " in capsys.readouterr().out


def cost(low: float, middle: float, high: float) -> Spread:
    return Spread(min=low, median=middle, max=high)


THEN = cost(0.9, 1.0, 1.1)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (cost(0.9, 1.0, 1.1), "as before"),
        (cost(1.0, 1.3, 1.4), "as before"),  # beyond 15 %, within the noise
        (cost(1.11, 1.14, 1.2), "as before"),  # beyond the noise, within 15 %
        (cost(0.87, 0.88, 0.89), "as before"),
        (cost(1.11, 1.3, 1.4), "slower by 1.30"),
        (cost(0.4, 0.5, 0.89), "faster by 2.00"),
        (cost(0.4, 0.5, 0.9), "as before"),  # the ranges touch
    ],
)
def test_a_cost_moved_where_the_ranges_are_apart_and_the_medians_differ_by_15_percent(now: Spread, words: str) -> None:
    assert verdict(now, THEN) == words


def test_every_piece_is_measured_written_and_compared_with_what_was_written(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = tmp_path / "quick.json"
    arguments = ["--rounds", "2", "--committed", str(committed)]
    quick.main([*arguments, "--write"], PIECES)
    written = json.loads(committed.read_text())
    assert written["rounds"] == 2
    assert written["pieces"].keys() >= {"SEED, a step", "text to shards", "search a pool", "search sparse texts"}
    assert len(written["pieces"]) == len(STEPS) + 5
    written["pieces"]["search a pool"] = dict.fromkeys(("min", "median", "max"), 1e-9)
    committed.write_text(json.dumps(written))
    one = {"search a pool": quick_pieces.Piece(lambda: sorted(range(10_000)), "python")}
    monkeypatch.setattr(quick, "pieces", lambda folder, sizes: one)
    capsys.readouterr()
    quick.main(arguments)
    assert re.search(r"^search a pool .* slower by [\d.]+$", capsys.readouterr().out, re.MULTILINE)
    assert json.loads(committed.read_text()) == written
