"""Labelled pairs: splits that share nothing, small label sets inside larger ones, units that suit the lanes."""

from itertools import islice
from pathlib import Path

import pytest
from trainer.data.pair_source import PairSource

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from tests import toy
from trainer.data.open_data import pair_data
from trainer.recipe.schema import FinetuneRecipe
from trainer.recipe.yaml_file import load


@pytest.fixture
def collection(toy_collection: Path) -> Collection:
    """100 pairs for training and 20 for test, one document each."""
    return Collection.open(toy_collection)


def test_pairs_and_negatives_are_of_the_split_alone(collection: Collection) -> None:
    train, test = (PairSource(collection, split, None, seed=1, unit=32) for split in ("train", "test"))
    assert (len(train.pairs), len(test.pairs)) == (100, 20)
    assert not set(train.candidates) & set(test.candidates)
    assert {pair.positive for pair in train.pairs} == set(train.candidates)
    for pair in train.pairs:
        assert pair.positive in pair.relevant


def test_fewer_labels_are_part_of_more(collection: Collection) -> None:
    few, more = (PairSource(collection, "train", limit, seed=1, unit=32) for limit in (10, 40))
    assert few.numbers == more.numbers[:10]
    assert list(few.candidates) == list(more.candidates)
    other = PairSource(collection, "train", 10, seed=2, unit=32)
    assert {pair.positive for pair in other.pairs} != {pair.positive for pair in few.pairs}


def test_more_labels_than_the_split_has_are_refused(collection: Collection) -> None:
    with pytest.raises(InputError, match="split train has 100 relevant pairs, the recipe asks for 101"):
        PairSource(collection, "train", 101, seed=1, unit=32)


@pytest.mark.parametrize(
    ("unit", "least_units", "sizes"),
    [
        (32, 1, [32, 32, 32, 4]),
        (32, 4, [25] * 4),
        (32, 30, [3] * 33 + [1]),
        (32, 100, [1] * 100),
        (32, 1000, [1] * 100),  # never empty
        (200, 1, [100]),
    ],
)
def test_units_hold_every_pair_once_in_order_and_are_as_many_as_asked(
    collection: Collection, unit: int, least_units: int, sizes: list[int]
) -> None:
    source = PairSource(collection, "train", None, seed=1, unit=unit, least_units=least_units)
    units = [source.read(shard, 0) for shard in range(len(source.chunks))]
    assert [len(pairs) for pairs in units] == sizes
    assert [pair for pairs in units for pair in pairs] == source.pairs
    assert set(source.chunks) == {1}
    for shard, pairs in enumerate(units):
        for item, pair in enumerate(pairs):
            document = collection.corpus.ids[pair.positive]
            assert source.name(shard, 0, item) == f"query q{document[1:]}, document {document}"


def recipe(path: Path, collection: Path, lanes: int, window: int) -> FinetuneRecipe:
    values = {
        "run": str(path),
        "steps": 2,
        "init_from": "none",
        "data": {"collection": str(collection), "lanes": lanes, "window": window},
        "validation": {"split": "test", "every": 1},
        "batch": {"size": 16, "micro": 8},
        "method": {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 32},
        "optimizer": {"lr": 1e-3},
    }
    return load(FinetuneRecipe, toy.write_recipe(path, **values))


@pytest.mark.parametrize(("lanes", "window", "unit"), [(2, 1, 32), (2, 2, 25), (4, 5, 5), (25, 16, 1), (100, 16, 1)])
def test_every_lane_gets_a_window_of_units_and_the_run_reads_every_pair(
    toy_collection: Path, tmp_path: Path, lanes: int, window: int, unit: int
) -> None:
    order = pair_data(recipe(tmp_path / "run.yaml", toy_collection, lanes, window)).order
    source = order.sources[""].source
    assert source.unit == unit
    assert len(source.chunks) >= min(100, lanes * window)
    micro_batches = islice(order.stream(order.start(), 0, 1), 40 * lanes)
    names = {name for batch in micro_batches for example in order.origins(batch) for name in example}
    read = [(shard, item) for shard in range(len(source.chunks)) for item in range(len(source.read(shard, 0)))]
    assert names == {source.name(shard, 0, item) for shard, item in read}


def test_a_held_out_micro_batch_has_batch_micro_pairs_whose_documents_are_all_its_negatives(
    toy_collection: Path, tmp_path: Path
) -> None:
    held_out = pair_data(recipe(tmp_path / "run.yaml", toy_collection, lanes=4, window=16)).held_out
    assert held_out is not None
    batches = list(held_out.micro_batches(0, 1))
    assert [batch.arrays["query_ids"].shape[0] for batch in batches] == [8, 8, 4]
    assert [batch.arrays["document_ids"].shape[0] for batch in batches] == [8, 8, 4]


def test_more_lanes_than_pairs_are_refused(toy_collection: Path, tmp_path: Path) -> None:
    words = r"data.lanes: 101 lanes need at least 101 shards \(in fine-tuning: pairs\), the data has 100"
    with pytest.raises(InputError, match=words):
        pair_data(recipe(tmp_path / "run.yaml", toy_collection, lanes=101, window=16))
