"""Fine-tuning: which pre-trained runs it accepts."""

from pathlib import Path

import pytest

from data_prep.common.errors import InputError
from tests.trainer.runs import write_run
from trainer import finetune
from trainer.recipe.schema import FinetuneRecipe
from trainer.recipe.yaml_file import build

METHODS = {
    1: {"name": "seed", "max_tokens": 32},
    3: {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3},
}


@pytest.mark.parametrize("learned", [1, 3])
def test_special_tokens_are_those_of_the_pre_training(toy_collection: Path, tmp_path: Path, learned: int) -> None:
    """With another number, embedding rows and positions would not be those that were trained."""
    pretrained = write_run(tmp_path / "pretrained", toy_collection / "tokenizer.json", **METHODS[learned])
    for wanted in (1, 2, 3):
        recipe = build(
            FinetuneRecipe,
            {
                "run": str(tmp_path / "run"),
                "init_from": str(pretrained),
                "steps": 2,
                "data": {"collection": str(toy_collection), "lanes": 4},
                "batch": {"size": 4, "micro": 4},
                "optimizer": {"lr": 1e-3},
                "method": {
                    "name": "siamese",
                    "special_tokens": wanted,
                    "max_query_tokens": 8,
                    "max_document_tokens": 16,
                },
            },
            "test",
        )
        if wanted == learned:
            assert finetune.build(recipe).model.special_tokens == learned
        else:
            with pytest.raises(InputError, match=f"{wanted}, but .*pretrained was trained with {learned}; set"):
                finetune.build(recipe)
