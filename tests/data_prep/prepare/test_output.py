import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import output
from deepsiam.data_prep.shards import stats
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import raw


@pytest.fixture(scope="module")
def out(datasketch: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished data set with --near-duplicates; read only."""
    folder = tmp_path_factory.mktemp("dataset")
    file = raw.write_jsonl(folder / "a.jsonl", raw.texts(60))
    raw.run("jsonl", file, "--out", folder / "out", "--held-out", 0.3, "--near-duplicates", 0.8)
    return folder / "out"


def test_lost_held_out_documents_are_missed(out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(out, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "held_out")
    lost = f"{tmp_path}/out/held_out: is missing; copy it again, or remove {tmp_path}/out to prepare it again"
    with pytest.raises(InputError) as error:
        output.check(tmp_path / "out")
    assert str(error.value) == lost
    with pytest.raises(SystemExit):
        main(["verify", str(tmp_path / "out")])
    assert lost in capfd.readouterr().err
    message = raw.refusal(
        capfd, "jsonl", out.parent / "a.jsonl", "--out", tmp_path / "b", "--against", tmp_path / "out"
    )
    assert message == lost


@given(st.integers(0, 10**9), st.integers(0, 1 << 40), st.floats(0, 0.99), st.none() | st.integers(1, 99))
def test_a_plan_has_every_shard_of_every_split_once(
    documents: int, size: int, share: float, wanted: int | None
) -> None:
    plan = output.plan(documents, min(size, 1 << 34), share, wanted)
    for split in output.SPLITS:
        of = [shard for shard in plan if shard.split == split]
        assert [(shard.number, shard.of) for shard in of] == [(number, len(of)) for number in range(len(of))]
        assert bool(of) == (split == "shards" or share > 0)
    if wanted:
        assert sum(shard.split == "shards" for shard in plan) == wanted


def test_the_keys_of_data_sets_are_those_of_all_their_documents(out: Path) -> None:
    keys = [document.key for split in output.SPLITS for document in raw.documents(out, split)]
    assert output.keys_of([out]).tolist() == output.keys_of([out, out]).tolist() == sorted(keys)
    assert len(keys) == 60
    assert output.keys_of([]).tolist() == []


def test_shards_without_keys_are_refused_for_comparison(small: Tokenizer, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "shards", small) as writer:
        writer.add("d", [[1]])
    with pytest.raises(InputError, match="shard-000000.tar: its documents have no keys; prepare the data set again"):
        output.keys_of([tmp_path])


def test_the_pairs_of_a_data_set_are_those_of_all_documents(out: Path) -> None:
    pairs = np.load(output.bands_of(out, 0.8))
    assert set(pairs["key"].tolist()) == set(output.keys_of([out]).tolist())
    assert (np.sort(pairs) == pairs).all()
    with pytest.raises(InputError, match=f"{out}: was not prepared with --near-duplicates 0.7; prepare it again"):
        output.bands_of(out, 0.7)


def test_the_hash_of_an_older_data_set_has_its_older_name(out: Path, tmp_path: Path) -> None:
    older = shutil.copytree(out, tmp_path / "older")
    manifest = json.loads((older / "shards" / "manifest.json").read_text())
    manifest["source"]["pairs"] = manifest["source"].pop("bands")
    (older / "shards" / "manifest.json").write_text(json.dumps(manifest))
    assert output.bands_of(older, 0.8) == older / output.BANDS


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0")])
def test_damaged_pairs_are_refused(out: Path, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    shutil.copytree(out, tmp_path / "copy")
    pairs = tmp_path / "copy" / output.BANDS
    damage(pairs)
    with pytest.raises(InputError, match=f"{pairs}: (cannot read: No such file|its SHA-256 is not the one)"):
        output.bands_of(tmp_path / "copy", 0.8)


def test_shards_not_made_by_a_preparation_are_refused_for_comparison(small: Tokenizer, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "shards", small) as writer:
        writer.add("d", [[1]])
    with pytest.raises(InputError, match="its shards are not those of a prepared data set"):
        output.bands_of(tmp_path, 0.8)


def test_the_work_folder_of_a_killed_run_is_removed(out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "copy")
    (tmp_path / "copy" / ".partial" / "read").mkdir(parents=True)
    output.check(tmp_path / "copy")
    assert raw.contents(tmp_path / "copy") == raw.contents(out)
    assert not (tmp_path / "copy" / ".partial").exists()


def test_stages_before_the_removal_of_duplicates_are_separated_from_it() -> None:
    stages = [{"name": name, "dropped": {name: 2}} for name in ("read", "length", *output.REMOVALS)]
    before, removed = output.before_removal({"stages": stages})
    assert [stage["name"] for stage in before] == ["read", "length"]
    assert removed == dict.fromkeys(output.REMOVALS, 2)


def test_the_share_of_unknown_tokens_is_printed_and_warned_about(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], small: Tokenizer
) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", [f"Лиса номер {number} прыгает: fox." for number in range(40)])
    raw.run("jsonl", file, "--out", tmp_path / "trained", "--vocab-size", 300)
    printed = capfd.readouterr()
    assert re.search(r"  unknown tokens: 0\.00 % of [\d,]+ in a sample\n", printed.out)
    assert "warning" not in printed.err
    raw.run("jsonl", file, "--out", tmp_path / "given", "--tokenizer", small.path)
    printed = capfd.readouterr()
    (share,) = re.findall(r"unknown tokens: ([\d.]+) % of", printed.out)
    counted = stats.collect(tmp_path / "given")["vocabulary"]["unknown_share"]
    assert float(share) == pytest.approx(100 * counted, abs=0.01)
    assert counted > 0.3
    assert f"warning: {tmp_path / 'given'}: {share} % of the tokens are unknown ([UNK])" in printed.err
