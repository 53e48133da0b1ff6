"""Shards written, read back, listed in a manifest and verified; damage is named."""

import dataclasses
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.shards import verify
from deepsiam.data_prep.shards.manifest import NAME, Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.forge import npz, pack, unpack, vouch_again
from tests.data_prep.raw import flip

Texts = list[list[list[int]]]
DOCUMENTS: Texts = [[[n % 70, 1, 2], [], [3]] if n % 5 else [] for n in range(40)]


def write(directory: Path, tok: Tokenizer, documents: Texts, chunk_tokens: int = 20, per_shard: int = 2) -> Manifest:
    with ShardWriter(directory, tok, chunk_tokens, per_shard) as writer:
        for number, document in enumerate(documents):
            writer.add(f"d{number}", document)
    return Manifest.load(directory)


def read_back(manifest: Manifest) -> tuple[list[str], Texts]:
    """Return the ids and the token ids of all documents."""
    shards = [Shard.open(manifest, index) for index in range(len(manifest.shards))]
    documents = [document for shard in shards for document in shard.documents()]
    names = [document.id for document in documents]
    return names, [[segment.tolist() for segment in document.segments] for document in documents]


@given(
    st.lists(st.lists(st.lists(st.integers(0, 75), max_size=6), max_size=4), min_size=1, max_size=12),
    st.integers(1, 30),
    st.integers(1, 3),
)
def test_documents_survive_a_round_trip(small: Tokenizer, documents: Texts, chunk_tokens: int, per_shard: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        manifest = write(Path(folder), small, documents, chunk_tokens, per_shard)
        names, read = read_back(manifest)
        assert read == documents
        assert names == [f"d{number}" for number in range(len(documents))]
        assert manifest.total("documents") == len(documents)
        assert manifest.total("segments") == sum(map(len, documents))
        assert manifest.total("tokens") == sum(len(s) for d in documents for s in d)
        assert all(entry.chunks <= per_shard for entry in manifest.shards)
        assert verify.verify(manifest.directory) == []


@pytest.mark.parametrize(("size", "id_type"), [("small", np.uint16), ("large", np.uint32)])
def test_ids_are_as_wide_as_needed(size: str, id_type: type, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tok: Tokenizer = request.getfixturevalue(size)
    manifest = write(tmp_path, tok, [[[0, tok.vocab_size - 1], []], []])
    assert manifest.id_type == id_type
    assert Shard.open(manifest, 0).read(0)[0].segments[0].dtype == id_type
    assert read_back(manifest)[1] == [[[0, tok.vocab_size - 1], []], []]


def test_a_chunk_closes_with_the_document_that_fills_it(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, [[[1] * 3]] * 7, chunk_tokens=5, per_shard=3)
    shard = Shard.open(manifest, 0)
    assert [len(shard.read(number)) for number in range(len(shard))] == [2, 2, 2]
    assert [entry.documents for entry in manifest.shards] == [6, 1]


def test_equal_documents_give_equal_bytes(small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(tmp_path / "a", small, DOCUMENTS)
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    old_umask = os.umask(0o077)
    try:
        second = write(tmp_path / "b", small, DOCUMENTS)
    finally:
        os.umask(old_umask)
    assert first.sha256 == second.sha256
    for entry in first.shards:
        assert (tmp_path / "a" / entry.name).read_bytes() == (tmp_path / "b" / entry.name).read_bytes()


def test_webdataset_reads_the_shards(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    urls = [str(tmp_path / entry.name) for entry in manifest.shards]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False).decode())
    assert {name for sample in samples for name in sample["npz"]} == {"ids", "segments", "documents"}
    ids = [token for sample in samples for token in sample["npz"]["ids"].tolist()]
    assert ids == [token for document in DOCUMENTS for segment in document for token in segment]
    names = [name for sample in samples for name in sample["json"]["documents"]]
    assert names == [f"d{number}" for number in range(len(DOCUMENTS))]


def test_a_token_beyond_the_vocabulary_cannot_be_written(small: Tokenizer, tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, small)
    for bad in (-1, small.vocab_size):
        with pytest.raises(ValueError, match="document x: a token id is beyond the vocabulary"):
            writer.add("x", [[0, bad]])


def test_a_full_disk_at_any_time_leaves_an_empty_folder(
    small: Tokenizer, tmp_path: Path, disk_full_after: Callable[[int], None]
) -> None:
    for good_syncs in range(10):
        disk_full_after(good_syncs)
        with pytest.raises(InputError, match="cannot write: No space left on device"):
            write(tmp_path, small, DOCUMENTS)
        assert list(tmp_path.iterdir()) == []


def test_no_documents_and_an_occupied_folder_are_refused(small: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no documents to write"), ShardWriter(tmp_path, small):
        pass
    write(tmp_path, small, DOCUMENTS)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(InputError, match="already holds shards"):
        ShardWriter(tmp_path, small)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_tokenizer_that_changes_meanwhile_is_refused(small: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(small.path.read_bytes())
    writer = ShardWriter(tmp_path / "out", dataclasses.replace(small, path=path))
    writer.add("x", [[1]])
    path.write_bytes(b"{}")
    with pytest.raises(InputError, match="changed while shards were written"):
        writer.close()
    assert list((tmp_path / "out").iterdir()) == []


def test_chunks_are_read_in_any_order_and_by_a_pickled_shard(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS, per_shard=9)
    shard = pickle.loads(pickle.dumps(Shard.open(manifest, 0)))
    backwards = [[document.id for document in shard.read(number)] for number in reversed(range(len(shard)))]
    assert sum(backwards[::-1], []) == [document.id for document in shard.documents()]


def test_a_shard_that_changes_after_it_was_opened_is_noticed(small: Tokenizer, tmp_path: Path) -> None:
    shard = Shard.open(write(tmp_path, small, DOCUMENTS), 0)
    (start, _), _ = shard.members[1].values()
    shard.path.write_bytes(shard.path.read_bytes()[: start - 512])  # tarfile takes it for the end
    with pytest.raises(InputError, match="1 chunks in order, its headers list 2"):
        list(shard.documents())
    with pytest.raises(InputError, match="chunk 1 is cut short"):
        shard.read(1)
    shard.path.write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match="shard-000000.tar: chunk 0: "):
        list(shard.documents())


def test_damage_names_the_shard_and_verify_lists_all(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    cut, changed, gone, *_ = paths = [tmp_path / entry.name for entry in manifest.shards]
    cut.write_bytes(cut.read_bytes()[:-512])
    flip(changed, 700)
    gone.unlink()
    reasons = (r"\d+ bytes, the manifest lists \d+", "its SHA-256 is not the one in the manifest", "missing")
    for index, reason in enumerate(reasons):
        with pytest.raises(InputError, match=f"{paths[index].name}: {reason}"):
            Shard.open(manifest, index)
    Shard.open(manifest, 3)
    pack(tmp_path / "shard-000099.tar", [])
    problems = dict(verify.verify(tmp_path))
    assert list(problems) == [*(path.name for path in paths[:3]), "shard-000099.tar"]
    assert "not in the manifest" in problems["shard-000099.tar"]


def test_verify_notices_wrong_counts_and_a_json_of_other_documents(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    path = tmp_path / manifest.shards[0].name
    members = unpack(path)
    one = b'{"documents": ["one"]}'
    pack(path, [members[0], (members[1][0], one), *members[2:]])
    vouch_again(tmp_path)
    assert "chunk 0: its .json has no list 'documents' of " in verify.verify(tmp_path)[0][1]
    fewer = npz(ids=np.array([1], np.uint16), segments=np.array([1], np.uint32), documents=np.array([1], np.uint32))
    pack(path, [(members[0][0], fewer), (members[1][0], one), *members[2:]])
    vouch_again(tmp_path)
    problems = [problem for _, problem in verify.verify(tmp_path)]
    for problem, field in zip(problems, ("documents", "segments", "tokens"), strict=True):
        assert f"{field}, the manifest lists {getattr(manifest.shards[0], field)}" in problem


def test_a_manifest_knows_its_shards_and_its_own_hash(small: Tokenizer, tmp_path: Path) -> None:
    with ShardWriter(tmp_path, small, 4, 2, {"options": {"a": 1}}) as writer:
        for number in range(9):
            writer.add(str(number), [[1, 2, 3]])
    manifest = Manifest.load(tmp_path)
    assert manifest.sha256 == sha256_of(tmp_path / NAME)
    assert manifest.source == {"options": {"a": 1}}
    special = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert manifest.tokenizer == {"fingerprint": small.fingerprint, "vocab_size": small.vocab_size, **special}
    assert (manifest.total("documents"), manifest.total("tokens"), manifest.total("chunks")) == (9, 27, 5)


def test_for_the_parent_folder_the_message_names_the_right_one(small: Tokenizer, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "shards", small) as writer:
        writer.add("x", [[1]])
    with pytest.raises(InputError, match=f"no such file; name {tmp_path / 'shards'}"):
        Manifest.load(tmp_path)
