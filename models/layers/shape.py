"""The shape of a trunk, which heads and decoders copy, and BERT's initialisation for them."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Shape:
    """The sizes, activation, dropouts and initialisation of a trunk, under BERT's names."""

    vocab_size: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    layer_norm_eps: float
    initializer_range: float


OTHER_NAMES = {  # DistilBERT's, ModernBERT's, EuroBERT's
    "intermediate_size": ("hidden_dim",),
    "hidden_act": ("activation", "hidden_activation"),
    "hidden_dropout_prob": ("dropout", "mlp_dropout"),
    "attention_probs_dropout_prob": ("attention_dropout",),
    "layer_norm_eps": ("norm_eps", "rms_norm_eps"),
}

DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # a trunk without the key has none


def setting(config: PreTrainedConfig, name: str, default: Any = None) -> Any:
    """Return the value of a key, by BERT's name for it, under whatever name the configuration has it."""
    names = (name, *OTHER_NAMES.get(name, ()))
    return next((getattr(config, each) for each in names if hasattr(config, each)), default)


def layer_norm_eps(trunk: PreTrainedModel) -> float | None:
    """Return what a trunk's norms add to the variance; DistilBERT's is only in its code."""
    eps: float | None = setting(trunk.config, "layer_norm_eps")
    return next((part.eps for part in trunk.modules() if isinstance(part, nn.LayerNorm)), None) if eps is None else eps


def shape_of(trunk: PreTrainedModel) -> Shape:
    """Read the shape of a trunk that shares its token embedding with heads, whatever names its configuration uses."""
    config = trunk.config
    values: dict[str, Any] = {}
    for field in fields(Shape):
        values[field.name] = setting(config, field.name, 0.0 if field.name in DROPOUTS else None)
    values["layer_norm_eps"] = layer_norm_eps(trunk)
    if absent_keys := [name for name, value in values.items() if value is None]:
        raise ValueError(f"model_type {config.model_type!r} lacks what a head is built from: {', '.join(absent_keys)}")
    width = trunk.get_input_embeddings().embedding_dim
    if width != values["hidden_size"]:
        raise ValueError(f"the token embedding is shared: its width {width} must be hidden_size {config.hidden_size}")
    return Shape(**values)


@torch.no_grad()
def initialise(module: nn.Module, std: float) -> None:
    """Apply BERT's initialisation: matrices N(0, std), biases 0, LayerNorms the identity."""
    for part in module.modules():  # a LayerNorm is built as the identity: nothing to do
        if isinstance(part, nn.Linear):
            part.weight.normal_(0.0, std)
            part.bias.zero_()
        elif isinstance(part, nn.Embedding):
            part.weight.normal_(0.0, std)
