import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from data_prep import docstring_dataset, shards
from data_prep.collection import Collection
from data_prep.docstring_dataset import Options, build
from data_prep.docstrings import SourceFile, find
from data_prep.errors import InputError
from data_prep.shards import Manifest, Shard

OPTIONS = Options(vocab_size=400, chunk_tokens=300, chunks_per_shard=2)


@pytest.fixture(scope="module")
def built(files: list[SourceFile], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished output; read only."""
    out = tmp_path_factory.mktemp("built") / "out"
    build(out, OPTIONS, files, 1)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_shards_hold_training_packages_only(built: Path) -> None:
    manifest = Manifest.load(built / "shards")
    assert shards.verify(built / "shards") == []
    packages = manifest.source["packages"]
    training = {name for name, record in packages.items() if record["split"] == "train"}
    names = [
        name
        for index in range(len(manifest.shards))
        for number in range(manifest.shards[index].chunks)
        for name in Shard.open(manifest, index).provenance(number)["documents"]
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
    assert set(opened.pool("test")) == set(opened.corpus.ids)
    assert not [i for i in opened.pool("dev") if packages[i.split(":")[0]]["split"] == "test"]


def test_the_number_of_workers_changes_no_byte(built: Path, files: list[SourceFile], tmp_path: Path) -> None:
    build(tmp_path / "out", OPTIONS, files, 3)
    assert contents(tmp_path / "out") == contents(built)


def test_a_finished_output_is_left_alone(built: Path, files: list[SourceFile]) -> None:
    before = contents(built)
    assert "complete already" in build(built, OPTIONS, files, 1)
    assert contents(built) == before
    with pytest.raises(InputError, match="made with other options .*; choose another --out or remove it"):
        build(built, Options(vocab_size=500), files, 1)
    assert contents(built) == before


def test_damage_to_a_finished_output_is_reported(files: list[SourceFile], tmp_path: Path) -> None:
    build(tmp_path / "out", OPTIONS, files, 1)
    shard = next((tmp_path / "out" / "shards").glob("*.tar"))
    shard.write_bytes(b"")
    with pytest.raises(InputError, match=f"{shard.name}: 0 bytes.*remove .*out to build it again"):
        build(tmp_path / "out", OPTIONS, files, 1)


def test_an_unfinished_output_starts_over(built: Path, files: list[SourceFile], tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".partial" / "shards").mkdir(parents=True)
    (out / ".partial" / "shards" / "shard-000000.tar").write_text("half")
    (out / "collection").mkdir()  # killed between the last two renames
    build(out, OPTIONS, files, 1)
    assert contents(out) == contents(built)


def test_what_lies_in_the_way_is_not_removed(files: list[SourceFile], tmp_path: Path) -> None:
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection" / "mine").write_text("mine")
    with pytest.raises(InputError, match="collection: in the way"):
        build(tmp_path, OPTIONS, files, 1)
    assert contents(tmp_path) == {"collection/mine": b"mine"}


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("good_syncs", [0, 3, 9, 30])
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
    assert not existing or os.listdir(out) == ["mine"]


def test_too_little_english_is_refused(files: list[SourceFile], tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1")
    for some in ([], find(tmp_path), files[:1]):
        with pytest.raises(InputError, match="hold too little English to train on and hold out"):
            build(tmp_path / "out", OPTIONS, some, 1)
        assert not (tmp_path / "out").exists()


def test_a_killed_run_leaves_no_output_and_the_next_one_finishes(
    built: Path, files: list[SourceFile], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from data_prep import docstring_dataset, docstrings\n"
        "root, out = map(Path, sys.argv[1:])\n"
        "docstring_dataset.write_collection = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "options = docstring_dataset.Options(400, 300, 2)\n"
        "docstring_dataset.build(out, options, docstrings.find(root), 1)\n"
    )
    root = files[0].path.parent
    run = subprocess.run([sys.executable, "-c", code, str(root), str(out)], stderr=subprocess.DEVNULL)
    assert run.returncode == -signal.SIGKILL
    assert os.listdir(out) == [".partial"]
    build(out, OPTIONS, files, 1)
    assert contents(out) == contents(built)


def test_a_path_that_cannot_be_written_is_refused(files: list[SourceFile], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot create this folder"):
        build(tmp_path / "file" / "out", OPTIONS, files, 1)


def test_the_summary_has_the_counts(built: Path) -> None:
    manifest = Manifest.load(built / "shards")
    text = docstring_dataset._summary(built, manifest)
    assert f"{manifest.total('documents'):,} documents" in text
    assert f"{manifest.total('tokens'):,} tokens" in text
