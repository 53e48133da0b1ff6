"""Small trunks of many types, for tests of what all have in common."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from models.trunk import build_trunk
from tests.models.tiny import CONFIG, VOCABULARY

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY.vocab_size + 1,
    "pad_token_id": VOCABULARY.pad,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}
BERT = SIZES | {name: value for name, value in CONFIG.items() if name.endswith("_prob")}
DECODER = SIZES | {"num_key_value_heads": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "bert": BERT,
    "bert, causal": BERT | {"is_decoder": True},
    "electra": BERT | {"embedding_size": 8},
    "roberta": BERT,
    "xlm-roberta": BERT,
    "camembert": BERT,
    "modernbert": SIZES | {"local_attention": 6},
    "distilbert": {"vocab_size": 41, "pad_token_id": 0, "dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2}
    | {"max_position_embeddings": 40, "dropout": 0.0, "attention_dropout": 0.0},
    "llama": DECODER,
    "mistral": DECODER | {"sliding_window": 6},
    "qwen2": DECODER,
    "qwen3": DECODER | {"head_dim": 8},
    "eurobert": DECODER,
}


def trunk_like(name: str) -> PreTrainedModel:
    """Build an fp64 trunk without dropout, of the settings with this name; every call gives the same weights."""
    torch.manual_seed(0)
    return build_trunk({"model_type": name.split(",")[0], **SETTINGS[name]}).double()
