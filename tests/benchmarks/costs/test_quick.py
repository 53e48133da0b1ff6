"""Which costs have changed: verdicts on made-up costs, and the whole command with tiny pieces."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.common import calibration, made_up_shards
from benchmarks.costs import quick
from benchmarks.costs.quick import Results, Spread, other_kinds, table, verdict
from benchmarks.costs.quick_pieces import STEPS, Piece, PieceSizes

TINY = PieceSizes(
    changes=("trunk.hidden_size=16", "trunk.num_attention_heads=2", "trunk.num_hidden_layers=1"),
    megabytes=0.02,
    tokens=150_000,
    micro_batches=2,
    verified=1,
    pool=50,
)


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


def results(pieces: dict[str, Spread], **machine: object) -> Results:
    return Results(machine={"cpu": "A", "instructions": ["AVX2"], **machine}, rounds=3, pieces=pieces)


def test_the_table_has_a_line_for_every_piece_of_either_side() -> None:
    now = results({"a": cost(1.9, 2.0, 2.1), "new one": THEN})
    lines = list(table(now, results({"a": THEN, "old one": THEN})))
    assert re.split(r"\s{2,}", lines[1]) == ["a", "2 (1.9 to 2.1)", "1 (0.9 to 1.1)", "2.00", "slower by 2.00"]
    assert lines[2].split()[:2] == ["new", "one"]
    assert lines[2].endswith("new")
    assert lines[3].startswith("old one")
    assert lines[3].endswith("not measured any more")
    assert len(lines) == 4


def test_another_kind_of_machine_is_compared_and_said() -> None:
    then, now = results({"a": THEN}), results({"a": THEN}, instructions=["AVX2", "AVX512"], commit="other")
    assert list(other_kinds(now.machine, then.machine)) == [
        "the committed numbers are of another kind: instructions: ['AVX2'] then, ['AVX2', 'AVX512'] now"
    ]
    lines = list(table(now, then))
    assert lines[1].endswith("as before")
    assert "another kind" in lines[-1]
    assert not list(other_kinds(then.machine, then.machine))


def test_a_cost_is_the_works_time_over_the_mean_of_two_calibrations(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([1.0, 6.0, 3.0])
    monkeypatch.setattr(calibration, "cpu_seconds", lambda work: next(spent))
    assert calibration.in_calibrations(lambda: None, lambda: None) == 3.0


@pytest.fixture
def small_calibrations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, size in {"WORDS": 20_000, "SIDE": 64, "LONG": 1 << 12}.items():
        monkeypatch.setattr(calibration, name, size)
    calibration._operands.cache_clear()
    yield
    calibration._operands.cache_clear()


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command set the threads of this process, and restore them after the test."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)


def test_it_measures_every_piece_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None, small_calibrations: None
) -> None:
    monkeypatch.setattr(made_up_shards, "CHUNKS_PER_SHARD", 1)
    monkeypatch.setattr(made_up_shards, "MICRO_BATCH", 2)
    committed = tmp_path / "quick.json"
    quick.main(["--rounds", "2", "--committed", str(committed), "--write"], TINY)
    written = json.loads(committed.read_text())
    assert written["rounds"] == 2
    assert written["pieces"].keys() >= {"SEED, a step", "text to shards", "search a pool", "search sparse texts"}
    assert len(written["pieces"]) == len(STEPS) + 5
    assert quick.read(committed) == Results(**written)


def test_it_compares_with_what_was_written_and_never_judges(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_thread: None,
    small_calibrations: None,
) -> None:
    monkeypatch.setattr(quick, "pieces", lambda folder, sizes: {"a piece": Piece(lambda: sum(range(9999)), "python")})
    committed = tmp_path / "quick.json"
    arguments = ["--rounds", "2", "--committed", str(committed)]
    quick.main(arguments)
    assert f"nothing to compare with: {committed}" in capsys.readouterr().out
    assert not committed.exists()
    quick.main([*arguments, "--write"])
    written = json.loads(committed.read_text())
    written["pieces"]["a piece"] = dict.fromkeys(("min", "median", "max"), 1e-9)
    committed.write_text(json.dumps(written))
    capsys.readouterr()
    quick.main(arguments)
    assert re.search(r"^a piece .* slower by [\d.]+$", capsys.readouterr().out, re.MULTILINE)
    assert json.loads(committed.read_text()) == written
