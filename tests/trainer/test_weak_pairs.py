"""Weak pairs for every network: a run of `pairs` starts the fine-tuning of its model, and nothing is drawn anew."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.yaml_file import read
from tests import toy
from tests.trainer.many_runs import job_of
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 32}
PROMPTS = {"query_prompt": "abc ", "document_prompt": "de "}
NETWORKS: dict[str, dict[str, Any]] = {
    "siamese": {},
    "colbert": {"dimension": 16},
    "sparse": {"head": "new_mlm"},
    "sparse, table": {"head": "new_mlm", "query": "table"},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_fine_tuning_begins_where_pairs_ended(toy_collection: Path, tmp_path: Path, name: str) -> None:
    network = {"name": name.split(",")[0], **NETWORKS[name]}
    prompts = {key: text for key, text in PROMPTS.items() if key == "document_prompt" or "table" not in name}
    tokenizer = toy_collection / "tokenizer.json"
    run = write_run(tmp_path / "pairs", tokenizer, name="pairs", score=network, **LENGTHS, **prompts)
    method = {**network, **LENGTHS}
    recipe = toy.finetune_recipe(tmp_path / "tuned.yaml", toy_collection, trunk=None, init_from=str(run), method=method)
    trained, job = load_trained(run), job_of(recipe, [])
    learned = {**dict(trained.model.named_parameters())}
    tuned = dict(job.model.named_parameters())
    assert tuned.keys() == learned.keys()
    assert not [key for key, weight in tuned.items() if not torch.equal(weight, learned[key])]
    assert {key: getattr(job.recipe.method, key) for key in prompts} == prompts  # of the start


def test_a_sparse_model_of_pairs_starts_with_a_number_of_terms(
    pair_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = {"name": "sparse", "head": "new_mlm", "start_terms": 7}
    recipe = toy.seed_recipe(tmp_path / "run.yaml", pair_shards, method={"name": "pairs", "score": score, **LENGTHS})
    job_of(recipe, [])
    assert "documents start with 7 terms each: " in capsys.readouterr().out


def test_queries_weigh_the_idf_of_the_documents_at_hand(
    pair_shards: Path, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = {"name": "sparse", "head": "new_mlm", "query": "idf"}
    pairs = toy.seed_recipe(tmp_path / "run.yaml", pair_shards, method={"name": "pairs", "score": score, **LENGTHS})
    labels = toy.finetune_recipe(tmp_path / "tuned.yaml", toy_collection, trunk=toy.TRUNK, method={**score, **LENGTHS})
    corpus = Collection.open(toy_collection).corpus
    streamed = [document.segments[1] for document in Shard.open(Manifest.load(pair_shards), 0).documents()]
    for recipe, texts in ((pairs, streamed), (labels, [corpus.tokens(i) for i in range(len(corpus))])):
        job = job_of(recipe, [])
        assert f"weigh their inverse document frequency in {len(texts):,} documents" in capsys.readouterr().out
        idf, having = job.model.query_table.idf, [set(text.tolist()) for text in texts]
        assert not idf.requires_grad
        for token in (0, 9, *map(int, texts[0][:3])):
            count = sum(token in tokens for tokens in having)
            expected = math.log(1 + (len(texts) - count + 0.5) / (count + 0.5))
            assert float(idf[token]) == pytest.approx(expected, rel=1e-6)


def test_recipes_of_three_trainings_have_one_network_and_prompts() -> None:
    for size in ("", "_small"):
        pairs, labels, last = (
            read(toy.ROOT / "recipes" / f"colbert_zero{stage}{size}.yaml") for stage in ("_pairs", "_labels", "")
        )
        assert pairs["method"]["score"] == {"name": "colbert", "dimension": 128}
        for earlier, later in ((pairs, labels), (labels, last)):
            assert later["init_from"] == earlier["run"]
            assert (later["method"]["name"], later["method"]["dimension"]) == ("colbert", 128)
            assert later["method"]["max_query_tokens"] == earlier["method"]["max_query_tokens"]
            assert "query_prompt" not in later["method"]
