"""Sources: shards checked before they are read, pairs that leak nothing."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from data_prep import manifest, packing
from data_prep import tokenizer as tokenizers
from data_prep.collection import Collection
from data_prep.errors import InputError
from data_prep.packing import TokenizedDocument
from data_prep.shards import Manifest, Shard
from models.task import MarkedDocument
from trainer.sources import PairSource, ShardSource


def test_a_shard_source_reads_every_document_of_the_manifest(shards: Path) -> None:
    manifest = Manifest.load(shards)
    source = ShardSource(manifest)
    read = [d for s, chunks in enumerate(source.chunks) for c in range(chunks) for d in source.read(s, c)]
    assert len(read) == manifest.total("documents")
    assert sum(len(segment) for document in read for segment in document) == manifest.total("tokens")


def test_a_damaged_shard_is_refused_by_name(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    source = ShardSource(Manifest.load(copy))
    victim = copy / source.manifest.shards[3].name
    victim.write_bytes(victim.read_bytes()[:-512])
    source.read(0, 0)
    with pytest.raises(InputError, match=victim.name):
        source.read(3, 0)


def write_marked(folder: Path, tokenizer_json: Path, documents: list[TokenizedDocument]) -> Manifest:
    """One shard, two documents a chunk."""
    folder.mkdir()
    vocabulary = tokenizers.load(shutil.copy(tokenizer_json, folder))
    chunks = [packing.encode_chunk(documents[i : i + 2], vocabulary.dtype, folder) for i in range(0, len(documents), 2)]
    manifest.write(folder, vocabulary, {}, [packing.write_shard(folder / manifest.shard_name(0), 0, chunks)])
    return Manifest.load(folder)


SEGMENTS = [np.array([5, 6]), np.array([7]), np.array([8, 9, 10])]


def test_what_is_known_of_the_documents_comes_with_them(shards: Path, tmp_path: Path) -> None:
    documents = [
        TokenizedDocument("a", SEGMENTS, headings=(0, 2)),
        TokenizedDocument("b#2", SEGMENTS[:1]),
        TokenizedDocument("reddit/t3_c/t1_x", SEGMENTS, context=2),
        TokenizedDocument("d", SEGMENTS, headings=(1,), context=1),
        TokenizedDocument("e", SEGMENTS),
    ]
    source = ShardSource(write_marked(tmp_path / "marked", shards / "tokenizer.json", documents))
    plain = Shard.open(source.manifest, 0)
    read = [document for chunk in range(3) for document in source.read(0, chunk)]
    stored = [document for chunk in range(3) for document in plain.read(chunk)]
    assert [[s.tolist() for s in document] for document in read] == [[s.tolist() for s in d] for d in stored]
    found = [(set(d.headings), d.context, d.whole) for d in read if isinstance(d, MarkedDocument)]
    assert found == [
        ({0, 2}, 0, "a"),
        (set(), 0, "b"),
        (set(), 2, "reddit/t3_c"),
        ({1}, 1, "d"),
        (set(), 0, "e"),
    ]


@pytest.mark.parametrize(("marks", "said"), [({"context": 4}, "4 is no number"), ({"headings": (3,)}, "no headings")])
def test_marks_that_cannot_be_of_the_document_are_refused(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marks: dict[str, int], said: str
) -> None:
    monkeypatch.setattr("trainer.sources.RETRIES", ())
    documents = [TokenizedDocument("a", SEGMENTS, **marks)]
    source = ShardSource(write_marked(tmp_path / "marked", shards / "tokenizer.json", documents))
    with pytest.raises(InputError, match=f"shard-000000.tar: chunk 0: .*{said}"):
        source.read(0, 0)


def test_pairs_and_negatives_are_of_the_split_alone(toy_collection: Path) -> None:
    collection = Collection.open(toy_collection)
    train, test = (PairSource(collection, split, None, seed=1) for split in ("train", "test"))
    assert (len(train.pairs), len(test.pairs)) == (100, 20)
    assert not set(train.candidates) & set(test.candidates)
    assert {pair.positive for pair in train.pairs} == set(train.candidates)
    for pair in train.pairs:
        assert pair.positive in pair.relevant
    assert train.chunks == [1] * 100
    assert train.read(5, 0) == [train.pairs[5]]


def test_fewer_labels_are_part_of_more(toy_collection: Path) -> None:
    collection = Collection.open(toy_collection)
    few, more = (PairSource(collection, "train", limit, seed=1) for limit in (10, 40))
    assert {pair.positive for pair in few.pairs} < {pair.positive for pair in more.pairs}
    assert list(few.candidates) == list(more.candidates)
    other = PairSource(collection, "train", 10, seed=2)
    assert {pair.positive for pair in other.pairs} != {pair.positive for pair in few.pairs}


def test_more_labels_than_there_are_are_refused(toy_collection: Path) -> None:
    with pytest.raises(InputError, match="split train has 100 relevant pairs, 101 wanted"):
        PairSource(Collection.open(toy_collection), "train", 101, seed=1)
