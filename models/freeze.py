"""Freeze parts of a model's encoder: they get no gradient, no optimizer state and no weight decay."""

from typing import Literal

from torch import nn
from transformers import PreTrainedModel

from deepsiam.models.trunk import TrunkModel, encoders_of, layers_of

Trained = Literal["all", "all_but_embeddings"] | int


def freeze(model: TrunkModel, trained: Trained) -> None:
    """Freeze each of a model's encoders but for what is `trained`: all, all but `embeddings`, or some top layers."""
    if trained == "all":
        return
    for encoder in encoders_of(model):
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
    # all else: the embeddings, the lower layers, and a norm after the last layer, if there is one
    for parameter in set(encoder.parameters()) - top:
        parameter.requires_grad_(False)


def embeddings_of(encoder: PreTrainedModel) -> nn.Module:
    """Return the part of an encoder below its layers: the tables of tokens and positions, and their normalisation."""
    embeddings = getattr(encoder, "embeddings", None)
    if not isinstance(embeddings, nn.Module):
        raise ValueError(f"model_type {encoder.config.model_type!r} has no `embeddings`: set a number of layers")
    return embeddings
