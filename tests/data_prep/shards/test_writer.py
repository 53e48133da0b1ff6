import dataclasses
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import verify
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.shards.written import DOCUMENTS, Texts, read_back, write


@given(
    st.lists(st.lists(st.lists(st.integers(0, 75), max_size=6), max_size=4), min_size=1, max_size=12),
    st.integers(1, 30),
    st.integers(1, 3),
)
def test_documents_survive_the_round_trip(
    small: Tokenizer, documents: Texts, chunk_tokens: int, per_shard: int
) -> None:
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
def test_ids_are_as_wide_as_the_vocabulary_needs(
    size: str, id_type: type, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
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


def test_the_same_documents_give_the_same_bytes(
    small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_tar_headers_are_plain_ustar_without_time_or_owner(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    path = tmp_path / manifest.shards[0].name
    with tarfile.open(path) as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
            assert (member.mode, member.pax_headers) == (0o644, {})


def test_webdataset_reads_the_shards(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    urls = [str(tmp_path / entry.name) for entry in manifest.shards]
    ids: list[int] = []
    names: list[str] = []
    for sample in webdataset.WebDataset(urls, shardshuffle=False).decode():
        assert set(sample["npz"]) == {"ids", "segments", "documents"}
        ids += sample["npz"]["ids"].tolist()
        names += sample["json"]["documents"]
    assert ids == [token for document in DOCUMENTS for segment in document for token in segment]
    assert names == [f"d{number}" for number in range(len(DOCUMENTS))]


def test_a_token_beyond_the_vocabulary_cannot_be_written(small: Tokenizer, tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, small)
    for bad in (-1, small.vocab_size):
        with pytest.raises(ValueError, match="document x: a token id is beyond the vocabulary"):
            writer.add("x", [[0, bad]])


def test_an_exception_in_the_block_leaves_an_empty_folder(small: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(KeyError), ShardWriter(tmp_path, small, 20, 2) as writer:
        write_until_key_error(writer)
    assert list(tmp_path.iterdir()) == []


def write_until_key_error(writer: ShardWriter) -> None:
    for number, document in enumerate(DOCUMENTS):
        writer.add(f"d{number}", document)
    assert list(writer.directory.glob("shard-*.tar"))
    raise KeyError


@pytest.mark.parametrize("good_syncs", range(10))
def test_a_full_disk_at_any_time_leaves_an_empty_folder(
    small: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    disk_full_after: Callable[[int], None],
    good_syncs: int,
) -> None:
    disk_full_after(good_syncs)
    with pytest.raises(InputError, match="cannot write: No space left on device"):
        write_in_a_block(tmp_path, small)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    write_in_a_block(tmp_path, small)


def write_in_a_block(directory: Path, tok: Tokenizer) -> None:
    with ShardWriter(directory, tok, 20, 2) as writer:
        for number, document in enumerate(DOCUMENTS):
            writer.add(f"d{number}", document)


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
