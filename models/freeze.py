"""Freeze parts of a model's encoder: they get no gradient, no optimizer state and no weight decay."""

from __future__ import annotations

from typing import Literal

from torch import nn
from transformers import PreTrainedModel

from models.trunk import TrunkModel

Trained = Literal["all", "all_but_embeddings"] | int


def freeze(model: TrunkModel, trained: Trained) -> None:
    """Freeze the untrained part of each of a model's encoders; all other parameters stay as they are.

    Args:
        model: has one encoder, or one for queries and one for documents.
        trained: everything, everything but the encoder's `embeddings`, or only this number of its top layers.

    Raises:
        ValueError: embeddings or layers are not found, there are too few layers, or nothing remains to be trained.
    """
    if trained == "all":
        return
    for encoder in (part for part in model.children() if isinstance(part, PreTrainedModel)):
        if trained == "all_but_embeddings":
            embeddings_of(encoder).requires_grad_(False)
        else:
            _freeze_below(encoder, trained)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"{trained} trains nothing: the model has no parameters outside the encoder: set 1 or more")


def _freeze_below(encoder: PreTrainedModel, number: int) -> None:
    layers = layers_of(encoder)
    if number > len(layers):
        raise ValueError(f"{number} layers, but the encoder has {len(layers)}: set {len(layers)} or less")
    top = set(layers[len(layers) - number :].parameters())
    for parameter in set(encoder.parameters()) - top:
        parameter.requires_grad_(False)


def embeddings_of(encoder: PreTrainedModel) -> nn.Module:
    """Return the part of an encoder below its layers: the tables of tokens and positions, and their normalisation.

    Raises:
        ValueError: the encoder does not call it `embeddings`.
    """
    embeddings = getattr(encoder, "embeddings", None)
    if not isinstance(embeddings, nn.Module):
        raise ValueError(f"model_type {encoder.config.model_type!r} has no `embeddings`: set a number of layers")
    return embeddings


def layers_of(encoder: PreTrainedModel) -> nn.ModuleList:
    """Return an encoder's layers, the lowest first: its only module list of the configured number of layers.

    Raises:
        ValueError: there is no such list (ALBERT's layers share their parameters), or there are several.
    """
    count = encoder.config.num_hidden_layers
    lists = {name: m for name, m in encoder.named_modules() if isinstance(m, nn.ModuleList) and len(m) == count}
    outermost = [m for name, m in lists.items() if not any(name.startswith(f"{other}.") for other in lists)]
    if len(outermost) != 1:
        found = f"{len(outermost)} lists of {count} modules, not one"
        raise ValueError(f"the layers of model_type {encoder.config.model_type!r} are not found ({found}): set all")
    return outermost[0]
