"""A pre-training run on pairs is a model that ranks, is exported and is fine-tuned as it is."""

from pathlib import Path
from typing import Any

import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.runs import write_run

KEYS: dict[str, Any] = {
    "similarity": "cosine",
    "temperature": 0.02,
    "pooling": "mean",
    "query_prompt": "ab ",
    "document_prompt": "abc ",
    "prompt_in_pooling": False,
}


@pytest.fixture
def run(toy_collection: Path, tmp_path: Path) -> Path:
    lengths = {"max_query_tokens": 32, "max_document_tokens": 32}  # an export has one length
    return write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="pairs", **lengths, **KEYS)


def test_it_ranks_as_its_export_does(run: Path, toy_collection: Path, tmp_path: Path) -> None:
    export_encoder(load_trained(run), tmp_path / "out")
    collection = Collection.open(toy_collection)
    assert load_any(run).kind == "siamese"
    own, exported = (evaluate_split(ranker_of(load_any(path), collection), "test") for path in (run, tmp_path / "out"))
    assert own.means == exported.means
    assert {key: getattr(load_any(tmp_path / "out").method, key) for key in KEYS if key != "temperature"} == {
        key: value for key, value in KEYS.items() if key != "temperature"
    }


def test_a_fine_tuning_goes_on_with_its_weights_pooling_similarity_and_prompts(
    run: Path, toy_collection: Path, tmp_path: Path
) -> None:
    def job(**method: Any) -> Any:
        values = toy.finetune_values(tmp_path / "next", toy_collection, init_from=str(run), method=method)
        return finetuning.build(build(FinetuneRecipe, values, "test"))

    taken = job()
    assert {key: getattr(taken.recipe.method, key) for key in KEYS} == KEYS
    for name, weight in load_trained(run).model.state_dict().items():
        torch.testing.assert_close(taken.model.state_dict()[name], weight, rtol=0, atol=0)
    changed = job(query_prompt="ba ", temperature=0.5).recipe.method
    assert (changed.query_prompt, changed.temperature, changed.document_prompt) == ("ba ", 0.5, "abc ")
