"""Recipes have the hyper-parameters stated in the papers, or in their released code; the others are not checked."""

from functools import reduce
from typing import Any

import pytest

from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.training.recipe.schema import kind_of
from deepsiam.trainer.training.recipe.yaml_file import load, read
from tests.toy import ROOT

RECIPES = ROOT / "recipes"
BERT_BASE = {"trunk.num_hidden_layers": 12, "trunk.hidden_size": 768, "trunk.intermediate_size": 3072}
CROSS_THOUGHT = {"optimizer.lr": 5e-4, "optimizer.warmup_steps": 10000, "steps": 125000}  # its baselines have the same
PRETRAINING_STATED: dict[str, dict[str, Any]] = {
    "cross_thought": {  # Wang et al., section 4.2: batches of 128 samples of 500 sequences of 64 tokens
        **CROSS_THOUGHT,
        "batch.size": 128,
        "method.sequences": 500,
        "method.sequence_tokens": 64,
        "method.special_tokens": 5,
        "trunk.max_position_embeddings": 5 + 564,
    },
    "clm": {**CROSS_THOUGHT, "trunk.is_decoder": True, "method.max_tokens": 512},
    "skip_thought": {**CROSS_THOUGHT, "method.max_tokens": 64},
    "poly": {  # Humeau et al., section 4.1 and appendix
        "method.tokens": 32000,
        "optimizer.lr": 2e-4,
        "optimizer.betas": [0.9, 0.98],
        "optimizer.weight_decay": 0.0,
        "optimizer.schedule": "inverse_sqrt",
    },
    "ict": {  # Lee et al., section 5.2 and 9.2
        "batch.size": 4096,
        "steps": 100000,
        "method.max_tokens": 288,
        "method.remove": 0.9,
        "optimizer.lr": 1e-4,
    },
    "mlm": {  # SEED's "RoBERTa (Ours)": the same as SEED itself
        "batch.size": 256,
        "method.max_tokens": 512,
        "optimizer.lr": 1e-4,
        "optimizer.betas": [0.9, 0.999],
        "optimizer.eps": 1e-6,
        "optimizer.warmup_steps": 10000,
        "steps": 1000000,
    },
    "retromae": {"method.encoder_mask": 0.3, "method.decoder_mask": 0.5, "optimizer.lr": 1e-4},
    "condenser": {"method.head_layers": 2, "optimizer.lr": 1e-4},
    "distil": {"method.loss": {"vectors": 1.0}},  # LEAF (Vujanic and Rueckstiess, 2025): vectors alone
    "pairs": {  # Wang et al., 2022 (E5), base; the batch is GTE's and nomic-embed's
        "batch.size": 16384,
        "steps": 20000,
        "data.one_source_per": "step",
        "method.negatives": "step",
        "method.temperature": 0.01,
        "method.similarity": "cosine",
        "method.pooling": "mean",
        "method.query_prompt": "query: ",
        "method.document_prompt": "passage: ",
        "optimizer.lr": 2e-4,
        "optimizer.warmup_steps": 1000,
        "optimizer.weight_decay": 0.01,
    },
}
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
FINETUNING_STATED: dict[str, dict[str, Any]] = {
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
STATED = {f"{name}_base": BERT_BASE | stated for name, stated in PRETRAINING_STATED.items()} | FINETUNING_STATED


@pytest.mark.parametrize("name", STATED)
def test_hyper_parameters_are_the_papers(name: str) -> None:
    path = RECIPES / f"{name}.yaml"
    values = load(kind_of(read(path)), path).model_dump(mode="json")
    found = {key: reduce(lambda section, part: section[part], key.split("."), values) for key in STATED[name]}
    assert found == STATED[name]


def test_every_method_has_a_base_and_a_small_recipe() -> None:
    assert set(PRETRAINING) == {"seed", *PRETRAINING_STATED}
    for name in PRETRAINING:
        assert all((RECIPES / f"{name}_{size}.yaml").is_file() for size in ("base", "small"))
