"""The base recipes have the hyper-parameters stated in the papers; the others are not checked."""

from typing import Any

import pytest

from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT

RECIPES = ROOT / "recipes"
BERT_BASE = {"trunk.num_hidden_layers": 12, "trunk.hidden_size": 768, "trunk.intermediate_size": 3072}
CROSS_THOUGHT = {"optimizer.lr": 5e-4, "optimizer.warmup_steps": 10000, "steps": 125000}  # its baselines have the same
STATED: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("name", STATED)
def test_hyper_parameters_are_the_papers(name: str) -> None:
    values = load(PretrainRecipe, RECIPES / f"{name}_base.yaml").model_dump(mode="json")

    def value(key: str) -> Any:
        value: Any = values
        for part in key.split("."):
            value = value[part]
        return value

    stated = BERT_BASE | STATED[name]
    assert {key: value(key) for key in stated} == stated


def test_every_method_has_a_base_and_a_small_recipe() -> None:
    assert set(PRETRAINING) == {"seed", *STATED}
    for name in PRETRAINING:
        assert all((RECIPES / f"{name}_{size}.yaml").is_file() for size in ("base", "small"))
