"""The benchmarks of data, tiny: rivals read the same text, orders have the known measures, every number is written."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.common import made_up_shards
from benchmarks.data import loader, opening, preparation, shuffle
from benchmarks.data.collection_size import measure
from benchmarks.data.loader import LANES, WINDOW, Readers
from deepsiam.data_prep.common import workers
from deepsiam.data_prep.shards.verify import verify
from deepsiam.data_prep.shards.writer import ShardWriter
from tests.data_prep import raw

MICRO_BATCH = 4


@pytest.fixture(scope="module")
def rivals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up_shards, "CHUNKS_PER_SHARD", 2)
        patch.setattr(made_up_shards, "VOCABULARY", 300)
        patch.setattr(made_up_shards, "ShardWriter", partial(ShardWriter, chunk_tokens=2_000))
        for module in (made_up_shards, loader):
            patch.setattr(module, "MICRO_BATCH", MICRO_BATCH)
        yield Readers(made_up_shards.write_shards(tmp_path_factory.mktemp("shards"), 100_000), LANES, WINDOW)


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> Any:
    """Run a script as a command; return what it wrote."""
    out = folder / "results.json"
    monkeypatch.setattr(sys, "argv", [script.__name__, *options, "--out", str(out)])
    script.main()
    return json.loads(out.read_text())


def test_the_loader_is_timed_with_its_rivals_and_in_a_longer_epoch_of_the_same_files(
    rivals: Readers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = made_up_shards.lengthen(rivals.manifest, tmp_path / "longer", 3)
    assert longer.total("tokens") == 3 * rivals.manifest.total("tokens")
    assert verify(tmp_path / "longer") == []
    monkeypatch.setattr(loader, "write_shards", lambda folder, tokens: rivals.manifest)
    monkeypatch.setattr(loader, "LONGER", 2)
    monkeypatch.setattr(loader, "WINDOW", 2)
    results = run(loader, monkeypatch, tmp_path, "--rounds", "1")
    for where in ("1 worker", "this process"):
        assert results[where]["tokens/s"].keys() == {"deepsiam", "read", "shuffled"}
        assert results[where]["deepsiam / read"]["median"] > 0
    assert len(results["resume"]["seconds"]) == 3
    assert "GPUs fed at 700,000 tokens/s each" in capsys.readouterr().out


def test_processes_share_the_pages_of_a_large_collection(tmp_path: Path) -> None:
    results = measure(tmp_path / "collection", 60_000, 2)
    assert results["memory of all processes, bytes"] < 15e6
    assert results["of it not file pages, bytes"] < 6e6  # a dict of the ids would take 7 MB in each process


def test_a_mix_of_made_up_pairs_opens_and_gives_micro_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(launcher.with_name("python")))  # the benchmark's other process is forked
    results = opening.measure(tmp_path, 1_000, 3)
    assert results["pairs of each"] * results["collections"] == 3_000
    assert min(results["seconds to open"], results[f"seconds to make {opening.MICRO_BATCHES} micro-batches"]) > 0


def test_four_orders_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = run(shuffle, monkeypatch, tmp_path, "--shards", "16")["orders"]
    assert len(orders) == 4
    assert all(0 <= value <= 1 for measures in orders.values() for value in measures.values())


@pytest.mark.slow
def test_preparation_is_measured_with_its_rivals_its_passes_and_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], launcher: Path
) -> None:
    monkeypatch.setattr(workers, "ProcessPoolExecutor", raw.forked_pool)
    monkeypatch.setattr(sys, "executable", str(launcher.with_name("python")))  # what `-m` starts is forked
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")  # the benchmark sets it
    options = ["--data", str(tmp_path / "nowhere"), "--megabytes", "0.1", "--rounds", "1"]
    monkeypatch.setattr(preparation, "TIMES", (2,))
    monkeypatch.setattr(preparation, "VOCABULARY", 300)
    results = run(preparation, monkeypatch, tmp_path, *options)
    assert results["text"] == "generated"
    for where in ("one process", "two processes"):
        result = results["text to shards"][where]
        assert {name: len(rates) for name, rates in result["MB/s"].items()} == {"deepsiam": 1, "tokenizers": 1}
        assert result["deepsiam / tokenizers"]["median"] > 0
    assert min(results["dump to text"]["MB/s"]["deepsiam"]) > 0
    installed = results["dump to text"]["WikiExtractor"] is not None
    assert ("deepsiam / WikiExtractor" in results["dump to text"]) == installed
    assert ("WikiExtractor is not installed" in capsys.readouterr().out) != installed
    assert results["two workers"]["two workers / one worker"]["min"] > 0
    passes = results["passes"]["wikipedia"]
    assert passes["MB/s"].keys() == {"inflate", "cut", "read", "write"}
    assert list(passes["bytes"]) == ["raw", "inflated", "text", "tokens", "shards"]
    assert all(share > 0 for share in passes["shares"].values())
    assert list(results["memory"]) == ["0.2"]
    assert results["memory"]["0.2"] > 10
