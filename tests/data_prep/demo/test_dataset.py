import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import replace_folder
from deepsiam.data_prep.demo import dataset
from deepsiam.data_prep.demo.dataset import DemoOptions, build
from deepsiam.data_prep.shards import verify
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.sources.docstrings.modules import SourceFile, find
from deepsiam.data_prep.tokenizers import tokenizer
from tests.data_prep.raw import contents

OPTIONS = DemoOptions(vocab_size=400, chunk_tokens=300, chunks_per_shard=2)


@pytest.fixture(scope="module")
def built(files: list[SourceFile], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished output; read only."""
    out = tmp_path_factory.mktemp("built") / "out"
    build(out, OPTIONS, files, 1)
    return out


def test_shards_contain_only_training_packages(built: Path) -> None:
    manifest = Manifest.load(built / "shards")
    assert verify.verify(built / "shards") == []
    packages = manifest.source["packages"]
    training = {name for name, record in packages.items() if record["split"] == "train"}
    names = [
        document.id for index in range(len(manifest.shards)) for document in Shard.open(manifest, index).documents()
    ]
    assert {name.split(":")[0] for name in names} == training
    assert len(names) == manifest.source["counts"]["documents"] == manifest.total("documents")
    assert manifest.source["counts"]["tokens"] == manifest.total("tokens")
    assert manifest.source["counts"]["segments"] == manifest.total("segments")
    assert len(manifest.shards) > 3


def test_the_collection_ranks_held_out_packages(built: Path) -> None:
    opened = Collection.open(built / "collection")
    packages = Manifest.load(built / "shards").source["packages"]
    assert opened.tokenizer.fingerprint == Manifest.load(built / "shards").tokenizer["fingerprint"]
    for split in ("train", "dev", "test"):
        judged = opened.qrels(split)
        assert len(judged) == Manifest.load(built / "shards").source["counts"]["pairs"][split] > 0
        for query, documents in judged.items():
            assert packages[query.split(":")[0]]["split"] == split
            assert {f"{document}#summary" for document in documents} == {query}
    pools = {split: [opened.corpus.ids[i] for i in opened.pool(split)] for split in ("dev", "test")}
    assert set(pools["test"]) == set(opened.corpus.ids)
    assert not [i for i in pools["dev"] if packages[i.split(":")[0]]["split"] == "test"]


def test_the_number_of_workers_changes_no_byte_and_what_was_made_is_said(
    built: Path, files: list[SourceFile], tmp_path: Path
) -> None:
    said = build(tmp_path / "out", OPTIONS, files, 3)
    assert contents(tmp_path / "out") == contents(built)
    manifest = Manifest.load(built / "shards")
    assert f"{manifest.total('documents'):,} documents" in said
    assert f"{manifest.total('tokens'):,} tokens" in said


def test_a_finished_output_is_checked_and_not_changed(built: Path, files: list[SourceFile], tmp_path: Path) -> None:
    before = contents(built)
    assert "complete already" in build(built, OPTIONS, files, 1)
    with pytest.raises(InputError, match="built with other options .*; choose another --out or remove it"):
        build(built, DemoOptions(vocab_size=500), files, 1)
    assert contents(built) == before
    out = shutil.copytree(built, tmp_path / "out")
    shard = next((out / "shards").glob("*.tar"))
    shard.write_bytes(b"")
    with pytest.raises(InputError, match=f"{shard.name}: 0 bytes.*remove .*out to build it again"):
        build(out, OPTIONS, files, 1)


def test_a_given_tokenizer_is_used_for_both(built: Path, files: list[SourceFile], tmp_path: Path) -> None:
    given = tokenizer.train(["one or two words of english"] * 2, 100, tmp_path / "given.json")
    out = tmp_path / "out"
    build(out, OPTIONS, files, 1, given)
    assert Manifest.load(out / "shards").tokenizer["fingerprint"] == given.fingerprint
    assert Collection.open(out / "collection").tokenizer.fingerprint == given.fingerprint
    assert contents(out / "collection" / "qrels") == contents(built / "collection" / "qrels")
    assert "complete already" in build(out, OPTIONS, files, 1, given)
    with pytest.raises(InputError, match="was built without .*given.json; choose another --out"):
        build(built, OPTIONS, files, 1, given)


@pytest.mark.parametrize("others", [["collection"], [".partial", "collection"], [".partial"]])
def test_folders_of_others_are_not_removed(files: list[SourceFile], tmp_path: Path, others: list[str]) -> None:
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    with pytest.raises(InputError, match=f"{others[0]}: exists, and is not from an unfinished run"):
        build(tmp_path, OPTIONS, files, 1)
    assert contents(tmp_path) == {f"{name}/mine": b"mine" for name in others}


@pytest.mark.parametrize(("good_syncs", "existing"), [(0, True), (9, True), (30, False)])
def test_a_full_disk_leaves_nothing(
    files: list[SourceFile], tmp_path: Path, disk_full_after: Callable[[int], None], good_syncs: int, existing: bool
) -> None:
    out = tmp_path / "out"
    if existing:
        out.mkdir()
        (out / "mine").write_text("mine")
    disk_full_after(good_syncs)
    with pytest.raises(InputError, match="cannot write: No space left on device"):
        build(out, OPTIONS, files, 1)
    assert out.exists() == existing
    assert not existing or contents(out) == {"mine": b"mine"}


def test_too_little_english_is_refused(files: list[SourceFile], tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1")
    for too_few in ([], find(tmp_path), files[:1]):
        with pytest.raises(InputError, match="contain too little English to train on and to hold out"):
            build(tmp_path / "out", OPTIONS, too_few, 1)
        assert not (tmp_path / "out").exists()


def test_a_failed_move_leaves_nothing(files: list[SourceFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_on_shards(new: Path, path: Path) -> None:
        if path.name == "shards":
            raise PermissionError(errno.EACCES, "not allowed")
        replace_folder(new, path)

    monkeypatch.setattr(dataset, "replace_folder", fail_on_shards)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InputError, match="cannot write: not allowed"):
        build(tmp_path, OPTIONS, files, 1)
    assert os.listdir(tmp_path) == ["mine"]


def test_a_killed_run_leaves_no_output_the_next_finishes(built: Path, files: list[SourceFile], tmp_path: Path) -> None:
    out = tmp_path / "out"
    if not (child := os.fork()):
        try:
            dataset.write_collection = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            build(out, OPTIONS, files, 1)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert os.listdir(out) == [".partial"]
    (out / "collection").mkdir()  # as if killed between the last two renames
    build(out, OPTIONS, files, 1)
    assert contents(out) == contents(built)
