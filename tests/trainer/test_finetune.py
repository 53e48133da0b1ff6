"""Fine-tuning: what it starts from."""

from pathlib import Path

import pytest
import torch

from data_prep.common.errors import InputError
from tests import toy
from tests.trainer.runs import write_run
from trainer import finetune
from trainer.checkpoints.export import export_encoder
from trainer.checkpoints.load import load_trained
from trainer.recipe.schema import FinetuneRecipe
from trainer.recipe.yaml_file import build

METHODS = {
    1: {"name": "seed", "max_tokens": 32},
    3: {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3},
}


def values(start: dict[str, object], collection: Path, folder: Path) -> dict[str, object]:
    """A recipe's values; `start` says what it starts from, and may replace others."""
    return {
        "run": str(folder / "run"),
        "steps": 2,
        "data": {"collection": str(collection), "lanes": 4},
        "batch": {"size": 4, "micro": 4},
        "optimizer": {"lr": 1e-3},
        "method": {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16},
        **start,
    }


@pytest.mark.parametrize("learned", [1, 3])
def test_special_tokens_are_those_of_the_pre_training(toy_collection: Path, tmp_path: Path, learned: int) -> None:
    """With another number, embedding rows and positions would not be those that were trained."""
    pretrained = write_run(tmp_path / "pretrained", toy_collection / "tokenizer.json", **METHODS[learned])
    for wanted in (1, 2, 3):
        method = {"name": "siamese", "special_tokens": wanted, "max_query_tokens": 8, "max_document_tokens": 16}
        start = {"init_from": str(pretrained), "method": method}
        recipe = build(FinetuneRecipe, values(start, toy_collection, tmp_path), "test")
        if wanted == learned:
            assert finetune.build(recipe).model.keys.special_tokens == learned
        else:
            with pytest.raises(InputError, match=f"{wanted}, but .*pretrained was trained with {learned}; set"):
                finetune.build(recipe)


def test_a_new_encoder_needs_no_start(toy_collection: Path, tmp_path: Path) -> None:
    jobs = [
        finetune.build(build(FinetuneRecipe, values({"trunk": toy.TRUNK}, toy_collection, tmp_path), "test"))
        for _ in range(2)
    ]
    first, second = (job.model.state_dict() for job in jobs)
    for name, weight in first.items():
        torch.testing.assert_close(weight, second[name], rtol=0, atol=0)
    for start in ({}, {"trunk": toy.TRUNK, "init_from": "x"}):
        with pytest.raises(InputError, match="trunk: name a trained encoder in init_from, or describe a new one there"):
            build(FinetuneRecipe, values(start, toy_collection, tmp_path), "test")


def test_an_export_is_fine_tuned_like_its_run(toy_collection: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "pretrained", toy_collection / "tokenizer.json", **METHODS[1])
    export_encoder(load_trained(run), tmp_path / "export")
    jobs = [
        finetune.build(build(FinetuneRecipe, values({"init_from": str(start)}, toy_collection, tmp_path), "test"))
        for start in (run, tmp_path / "export")
    ]
    first, second = (job.model.state_dict() for job in jobs)
    assert first.keys() == second.keys()
    for name, weight in first.items():
        torch.testing.assert_close(weight, second[name], rtol=0, atol=0)
