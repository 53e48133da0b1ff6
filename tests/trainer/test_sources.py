"""Sources: shards checked before they are read, pairs that leak nothing."""

import shutil
from pathlib import Path

import pytest

from data_prep.collection import Collection
from data_prep.errors import InputError
from data_prep.shards import Manifest
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
