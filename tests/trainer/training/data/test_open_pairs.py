"""Pairs that a recipe cannot use are refused; a few pairs are enough for the small recipes."""

from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy


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
