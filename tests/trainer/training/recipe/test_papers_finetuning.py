"""The fine-tuning recipes have the hyper-parameters of the papers or their released code; the others are free."""

from typing import Any

import pytest

from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT

SPLADE = {  # Formal et al., 2021b, and its released code
    "steps": 150000,
    "batch.size": 128,
    "optimizer.lr": 2e-5,
    "optimizer.warmup_steps": 6000,
    "method.max_document_tokens": 256,
    "method.document": "vocabulary",
}
MSMARCO = {"method.projection": 768, "method.loss": "softmax", "method.negatives": "own", "method.hard_negatives": 1}
DIALOGUE = {  # Humeau et al., section 5.1; lengths as in ParlAI
    "optimizer.name": "adamax",
    "optimizer.lr": 5e-5,
    "optimizer.warmup_steps": 100,
    "optimizer.weight_decay": 0.0,
    "optimizer.plateau": {"factor": 0.4, "patience": 0},
    "batch.size": 512,
    "method.max_query_tokens": 360,
    "method.max_document_tokens": 72,
    "method.kept_of_query": "end",
}
STATED: dict[str, dict[str, Any]] = {
    "seed_msmarco_passage": {**MSMARCO, "batch.size": 256, "optimizer.warmup_steps": 1000, "steps": 273000},
    "seed_msmarco_passage_ance": {
        **MSMARCO,
        "batch.size": 64,
        "batch.micro": 16,
        "optimizer.lr": 1e-6,
        "optimizer.warmup_steps": 5000,
        "method.max_document_tokens": 512,
        "method.max_query_tokens": 64,
        "refresh.every": 10000,
        "refresh.depth": 200,
    },
    "seed_msmarco_document": {
        **MSMARCO,
        "batch.size": 64,
        "method.max_document_tokens": 512,
        "method.document_chunks": 1,
    },
    "seed_mind": {**MSMARCO, "method.max_query_tokens": 512, "method.kept_of_query": "end"},
    "dialogue_bi": {**DIALOGUE, "method.towers": 2, "method.pooling": "cls", "method.negatives": "step"},
    **{f"dialogue_poly{m}": {**DIALOGUE, "method.m": m, "method.codes": "learnt"} for m in (16, 64, 360)},
    "dialogue_cross": {**DIALOGUE, "batch.size": 16, "optimizer.warmup_steps": 1000, "method.hard_negatives": 19},
    "colbertv2": {  # Santhanam et al.
        "steps": 400000,
        "batch.size": 32,
        "optimizer.lr": 1e-5,
        "optimizer.warmup_steps": 20000,
        "method.loss": {"softmax": 1.0, "kl": 1.0},
        "method.candidates": {"per_query": 64, "keep": "positive"},
        "method.max_document_tokens": 220,
    },
    "bge": {  # FlagEmbedding's example for BGE, with knowledge distillation
        "optimizer.lr": 1e-5,
        "method.temperature": 0.02,
        "method.similarity": "cosine",
        "method.pooling": "cls",
        "method.loss": {"softmax": 1.0, "kl": 1.0},
        "method.candidates": {"per_query": 8, "keep": "positive"},
        "method.max_query_tokens": 512,
        "method.max_document_tokens": 512,
    },
    "duobert": {  # Nogueira et al., 2019, section 4; 64 triples in both orders
        "batch.size": 64,
        "optimizer.lr": 3e-6,
        "optimizer.warmup_steps": 10000,
        "optimizer.weight_decay": 0.01,
        "optimizer.clip": 1.0,
        "steps": 100000,
        "method.max_query_tokens": 64,
        "method.max_duel_tokens": 512,
    },
    "label_ranker": {  # Reddy et al., 2024, section 4
        "batch.size": 32,
        "optimizer.lr": 5e-6,
        "method.loss": {"softmax": 1.0, "rank_net": 10.0},
        "method.candidates": {"per_query": 20, "keep": "positive"},
        "method.labels": [*"ABCDEFGHIJKLMNOPQRST"],
    },
    "cross_thought_answers": {  # Wang et al., section 4.2
        "batch.size": 80,
        "optimizer.lr": 5e-5,
        "optimizer.warmup_steps": 2220,
        "steps": 20360,
        "method.special_tokens": 5,
        "method.hard_negatives": 99,
    },
    "splade": {**SPLADE, "method.query": "encoder"},
    "splade_doc": {**SPLADE, "method.query": "tokens"},
    "splade_lexical": {**SPLADE, "method.query": "own_tokens"},
    "tildev2": {  # Zhuang and Zuccon, 2021
        "optimizer.lr": 5e-6,
        "method.hard_negatives": 7,
        "method.max_query_tokens": 16,
        "method.max_document_tokens": 192,
    },
    "cross_thought_pairs": {
        "batch.size": 32,
        "optimizer.lr": 1e-5,
        "optimizer.warmup_steps": 7432,
        "steps": 123873,
        "method.special_tokens": 5,
    },
}


@pytest.mark.parametrize("name", STATED)
def test_hyper_parameters_are_the_papers(name: str) -> None:
    values = load(FinetuneRecipe, ROOT / "recipes" / f"{name}.yaml").model_dump(mode="json")
    nested = {
        f"{section}.{key}": v for section, keys in values.items() if isinstance(keys, dict) for key, v in keys.items()
    }
    assert {key: (values | nested)[key] for key in STATED[name]} == STATED[name]
