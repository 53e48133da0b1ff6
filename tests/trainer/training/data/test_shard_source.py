"""Shards are checked before they are read; documents come with the metadata that the shard has for them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import manifest, packing
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.training.data.shard_source import ShardSource


def test_a_shard_source_reads_every_document_of_the_manifest(shards: Path) -> None:
    manifest = Manifest.load(shards)
    source = ShardSource(manifest)
    read = [d for s, chunks in enumerate(source.chunks) for c in range(chunks) for d in source.read(s, c)]
    assert len(read) == manifest.total("documents")
    assert sum(len(segment) for document in read for segment in document.segments) == manifest.total("tokens")


def test_a_damaged_shard_is_refused_by_name(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    source = ShardSource(Manifest.load(copy))
    victim = copy / source.manifest.shards[3].name
    victim.write_bytes(victim.read_bytes()[:-512])
    source.read(0, 0)
    with pytest.raises(InputError, match=victim.name):
        source.read(3, 0)


def write_one_shard(folder: Path, tokenizer_json: Path, documents: list[TokenDocument]) -> Manifest:
    """Write one shard with two documents per chunk."""
    folder.mkdir()
    vocabulary = tokenizers.load(shutil.copy(tokenizer_json, folder))
    chunks = [packing.encode_chunk(documents[i : i + 2], vocabulary.dtype, folder) for i in range(0, len(documents), 2)]
    manifest.write(folder, vocabulary, {}, [packing.write_shard(folder / manifest.shard_name(0), 0, chunks)])
    return Manifest.load(folder)


SEGMENTS = [np.array([5, 6]), np.array([7]), np.array([8, 9, 10])]


def test_documents_have_all_attributes_that_the_shard_stores(shards: Path, tmp_path: Path) -> None:
    documents = [
        TokenDocument(SEGMENTS, "a", headings=(0, 2)),
        TokenDocument(SEGMENTS[:1], "b#2", "b"),
        TokenDocument(SEGMENTS, "reddit/t3_c/t1_x", "reddit/t3_c", context=2),
        TokenDocument(SEGMENTS, "d", headings=(1,), context=1),
        TokenDocument(SEGMENTS, "e"),
    ]
    source = ShardSource(write_one_shard(tmp_path / "one", shards / "tokenizer.json", documents))
    read = [document for chunk in range(3) for document in source.read(0, chunk)]
    expected = [[segment.tolist() for segment in document.segments] for document in documents]
    assert [[segment.tolist() for segment in document.segments] for document in read] == expected
    assert [(document.headings, document.context, document.group) for document in read] == [
        ((0, 2), 0, "a"),
        ((), 0, "b"),
        ((), 2, "reddit/t3_c"),
        ((1,), 1, "d"),
        ((), 0, "e"),
    ]
    assert source.name(0, 1, 0) == "shard-000000.tar chunk 1 document 0 (reddit/t3_c/t1_x)"


@pytest.mark.parametrize("attributes", [{"context": 4}, {"headings": (3,)}])
def test_attributes_that_do_not_fit_the_document_are_refused(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: dict[str, Any]
) -> None:
    monkeypatch.setattr("deepsiam.trainer.training.data.shard_source.RETRIES", ())
    documents = [TokenDocument(SEGMENTS, "a", **attributes)]
    source = ShardSource(write_one_shard(tmp_path / "one", shards / "tokenizer.json", documents))
    with pytest.raises(InputError, match="shard-000000.tar: chunk 0: .*more segments than the 3 of a document"):
        source.read(0, 0)
