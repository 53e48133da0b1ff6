"""Adapters: low-rank matrices beside the frozen linear layers of an encoder (LoRA, Hu et al., 2022), by peft."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pydantic import Field, PositiveInt
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from deepsiam.models.config import Section
from deepsiam.models.trunk import TrunkModel, encoders_of, token_embedding

if TYPE_CHECKING:  # an extra
    from peft import LoraConfig, LoraModel

NAME = "default"  # of the adapters, in the names of their parameters


class Lora(Section):
    """The size of the matrices, and the layers that get them."""

    rank: PositiveInt = 16
    alpha: PositiveInt = 32  # what they add is multiplied by alpha / rank
    dropout: float = Field(0.05, ge=0, lt=1)  # of their inputs
    targets: list[str] | None = Field(None, min_length=1)  # linear layers, by the ends of their names; null: peft's


class Adapters(Section):
    """What is trained of an encoder while its own weights stay as they are."""

    lora: Lora


def choose_targets(encoder: PreTrainedModel, keys: Lora) -> Lora:
    """Check the targets against an encoder; without any, choose those that peft knows for its type, or all layers."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    linear, kind = _linear(encoder), encoder.config.model_type
    names = sorted({name if end.isdigit() else end for name in linear for end in [name.rpartition(".")[2]]})
    known_targets = KNOWN.get(kind)  # of some types it is a pattern, for a part of a larger model
    targets = keys.targets or (known_targets if isinstance(known_targets, list) else names)
    for target in targets:
        layers = [layer for name, layer in linear.items() if f".{name}".endswith(f".{target}")]
        if not layers:
            raise ValueError(f"lora.targets: {target!r} is no linear layer of a {kind}: choose from {', '.join(names)}")
        if not all(layer.weight.requires_grad for layer in layers):
            raise ValueError(f"lora: the method does not train {target!r} of the encoder: set all")
    return keys.model_copy(update={"targets": list(targets)})


def add_adapters(model: TrunkModel, keys: Lora, *, new_tokens: bool = False) -> list[LoraModel]:
    """Freeze a model's encoders and add adapters to them; the heads stay as they are.

    Also set `from_base`, the parameters that a checkpoint need not have.

    Args:
        model: its trunk has the weights of the base.
        keys: of the adapters, with targets.
        new_tokens: whether the table of tokens has rows that the base lacks.

    Returns:
        peft's wrappers of the encoders, which can merge the adapters.
    """
    from peft import LoraModel

    encoders = encoders_of(model)
    base = list(encoders[0].parameters())  # it has the weights of the base; a second tower may have others
    pairs = [pair for encoder in encoders for pair in zip(encoder.parameters(), base, strict=True)]
    in_base = {id(weight) for weight, base_weight in pairs if weight is base_weight or torch.equal(weight, base_weight)}
    if new_tokens:
        in_base -= {id(token_embedding(encoder)) for encoder in encoders}
    wrappers = [LoraModel(encoder, lora_config(encoder, keys), NAME) for encoder in encoders]
    model.from_base = frozenset(name for name, parameter in model.named_parameters() if id(parameter) in in_base)
    return wrappers


def lora_config(encoder: PreTrainedModel, keys: Lora) -> LoraConfig:
    """Return peft's configuration of adapters."""
    from peft import LoraConfig

    return LoraConfig(
        r=keys.rank,
        lora_alpha=keys.alpha,
        lora_dropout=keys.dropout,
        target_modules=keys.targets,
        # GPT-2's Conv1D stores its matrix transposed
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in _linear(encoder).values()),
    )


def _linear(encoder: PreTrainedModel) -> dict[str, nn.Linear | Conv1D]:
    return {name: layer for name, layer in encoder.named_modules() if isinstance(layer, nn.Linear | Conv1D)}
