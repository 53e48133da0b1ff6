"""Activation checkpointing: keep only the inputs of layers for the backward pass, which recomputes the rest."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from deepsiam.models.layers.transformer import TransformerLayer
from deepsiam.models.trunk import TrunkModel


def recompute_layers(model: TrunkModel) -> None:
    """Recompute each layer of a model's encoders and heads; losses, and the names of parameters, stay the same."""
    for layer in _layers(model):
        forward: Any = partial(checkpoint, layer.forward, use_reentrant=False)
        layer.forward = forward


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost layers of a module: single ones, and those in lists."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        elif isinstance(child, TransformerLayer):
            yield child
        else:
            yield from _layers(child)
