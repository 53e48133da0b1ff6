"""The rivals of the loader benchmark read the same text, and every promised number is measured."""

import json
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common import made_up_shards
from benchmarks.data import loader
from benchmarks.data.loader import LANES, WINDOW, Readers
from deepsiam.data_prep.shards.verify import verify


@pytest.fixture(scope="module")
def rivals(tmp_path_factory: pytest.TempPathFactory) -> Readers:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up_shards, "CHUNKS_PER_SHARD", 2)
        return Readers(made_up_shards.write_shards(tmp_path_factory.mktemp("shards"), 800_000), LANES, WINDOW)


def test_webdataset_yields_every_token_of_the_shards(rivals: Readers) -> None:
    assert sum(map(loader.text_tokens, rivals.read(0))) == rivals.manifest.total("tokens")
    segments = [segment for document in rivals.documents() for segment in document.segments]
    assert sum(map(len, segments)) == rivals.manifest.total("tokens")


def test_both_make_seed_micro_batches_of_full_blocks(rivals: Readers) -> None:
    for make in (rivals.micro_batches, rivals.shuffled):
        batches = list(islice(make(0), 20))
        assert {batch.arrays["original_ids"].shape for batch in batches} == {(32, 512)}
        assert {batch.arrays.keys() >= {"mlm_targets", "decoder_targets"} for batch in batches} == {True}
        assert np.mean([loader.text_tokens(batch) for batch in batches]) > 0.9 * 32 * 512


def test_a_longer_epoch_repeats_the_same_files(rivals: Readers, tmp_path: Path) -> None:
    longer = made_up_shards.lengthen(rivals.manifest, tmp_path / "longer", 3)
    assert longer.total("tokens") == 3 * rivals.manifest.total("tokens")
    assert verify(tmp_path / "longer") == []
    assert made_up_shards.resume(Readers(longer, LANES, WINDOW), LANES) > 0


def test_it_prints_and_writes_rates_ratios_and_gpus(
    rivals: Readers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loader, "write_shards", lambda folder, tokens: rivals.manifest)
    monkeypatch.setattr(loader, "LONGER", 2)
    monkeypatch.setattr(loader, "WINDOW", 2)
    monkeypatch.setattr(sys, "argv", ["loader", "--rounds", "1", "--out", str(tmp_path / "loader.json")])
    loader.main()
    results = json.loads((tmp_path / "loader.json").read_text())
    for where in ("1 worker", "this process"):
        assert results[where]["tokens/s"].keys() == {"deepsiam", "read", "shuffled"}
        assert results[where]["deepsiam / read"]["median"] > 0
    assert len(results["resume"]["seconds"]) == 3
    assert "GPUs fed at 700,000 tokens/s each" in capsys.readouterr().out
