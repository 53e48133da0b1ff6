"""Shards that a recipe's method cannot use are refused."""

import json
import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.manifest import NAME
from deepsiam.trainer.training.data.open_data import pair_data, shard_data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy


def with_source(shards: Path, folder: Path, **source: object) -> Path:
    """A copy of shards with other entries in the `source` of its manifest."""
    shutil.copytree(shards, folder)
    record = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**record, "source": {**record["source"], **source}}))
    return folder


def test_utterances_of_shards_without_dialogues_are_refused(shards: Path, tmp_path: Path) -> None:
    folder = with_source(shards, tmp_path / "shards", dialogues=False)
    wanted = {"method": {"name": "poly", "pairs": "utterances"}, "batch": {"size": 1, "micro": 1}}
    recipe = load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", folder, **wanted))
    with pytest.raises(InputError, match=f"^method.pairs=utterances: the documents of {folder} are not dialogues"):
        shard_data(recipe)
    sentences = {**wanted, "method": {"name": "poly", "pairs": "sentences"}}
    assert shard_data(load(PretrainRecipe, toy.seed_recipe(tmp_path / "other.yaml", folder, **sentences)))


def test_utterances_of_dialogues_and_of_unknown_documents_are_accepted(shards: Path, tmp_path: Path) -> None:
    for folder in (shards, with_source(shards, tmp_path / "shards", dialogues=True)):
        wanted = {"method": {"name": "poly", "pairs": "utterances"}, "batch": {"size": 1, "micro": 1}}
        assert shard_data(load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", folder, **wanted)))


def test_a_split_that_does_not_suit_validation_names_its_key_and_that_there_need_be_none(toy_collection: Path) -> None:
    def asked(*changes: str) -> None:
        start = [f"data.collection={toy_collection}", "validation={split: test, every: 9}", *changes]
        pair_data(load(FinetuneRecipe, toy.ROOT / "recipes/siamese_small.yaml", start))

    for changes, words in (
        (
            ["validation.split=dev"],
            "^validation.split: .*no split 'dev'; choose one of: .*; or set validation to null$",
        ),
        (["data.split=dev"], "^data.split: .*no split 'dev'; choose one of: test, train$"),
        (
            ["method.hard_negatives=1", "refresh.every=5"],
            "split test gives query .* only 0: .*; or set validation to null",
        ),
    ):
        with pytest.raises(InputError, match=words):
            asked(*changes)


@pytest.mark.parametrize("name", ["siamese", "poly_encoder", "colbert", "cross_encoder", "cross_thought_answers"])
def test_the_small_recipes_train_on_a_collection_of_a_few_pairs(shards: Path, tmp_path: Path, name: str) -> None:
    folder = toy.write_collection(tmp_path / "c", shards / "tokenizer.json", count=26)  # 6 of them are to train on
    data = pair_data(load(FinetuneRecipe, toy.ROOT / f"recipes/{name}_small.yaml", [f"data.collection={folder}"]))
    assert len(next(data.order.stream(data.order.start(), 0, 1)).micro_batch.arrays["candidates"])
