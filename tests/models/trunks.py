"""Small trunks of many types, for tests of what all have in common, and a kernel for texts in one row on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.attention import TextsInRow
from deepsiam.models.build_trunk import build_trunk
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
    "modernbert": SIZES | {"local_attention": 6},
    "distilbert": {"vocab_size": 41, "pad_token_id": 0, "dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2}
    | {"max_position_embeddings": 40, "dropout": 0.0, "attention_dropout": 0.0},
    "gpt2": {"vocab_size": 41, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
    | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "gpt_neox": SIZES,
    "mistral": DECODER | {"sliding_window": 6},
    "qwen2, bidirectional": DECODER | {"is_causal": False},
    "qwen3": DECODER | {"head_dim": 8},
    **dict.fromkeys(["albert", "camembert", "ernie", "nomic_bert", "roberta", "xlm-roberta", "xlm-roberta-xl"], BERT),
    **dict.fromkeys(["eurobert", "llama", "olmo2", "phi3", "qwen2", "smollm3"], DECODER),
}


def trunk_like(name: str) -> PreTrainedModel:
    """Build an fp64 trunk without dropout, of the settings with this name; every call gives the same weights."""
    torch.manual_seed(0)
    return build_trunk({"model_type": name.split(",")[0], **SETTINGS[name]}).double()


def attend_text_by_text(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    texts: TextsInRow,
    *,
    dropout: float,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """Attend as `models.attention.flash` does, by SDPA, one text after the other."""
    lengths = texts.ends.diff().tolist()
    assert max(lengths) == texts.max_length
    outputs = []
    for q, k, v in zip(*(x.transpose(0, 1).split(lengths, dim=1) for x in (query, key, value)), strict=True):
        places = torch.arange(q.shape[1])
        distance = places[:, None] - places
        seen = distance.abs() < (len(places) if window is None else window)
        if texts.causal:
            seen &= distance >= 0
        outputs.append(F.scaled_dot_product_attention(q, k, v, seen, dropout, scale=scale, enable_gqa=True))
    return torch.cat(outputs, dim=1).transpose(0, 1)
