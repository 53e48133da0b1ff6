"""How the layers of a model's encoders run: compiled, or with activations recomputed for the backward pass."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from deepsiam.models.layers.transformer import TransformerLayer
from deepsiam.models.trunk import TrunkModel, encoders_of, layers_of


def compile_layers(model: TrunkModel) -> None:
    """Let torch.compile make each layer of a model's encoders into fewer kernels, at its first use.

    The layers of an encoder have one program, for inputs of any length. Names of parameters stay as they are. Call
    `recompute_layers` after this, not before: the compiler does not look into layers that recompute.
    """
    for encoder in encoders_of(model):
        for layer in layers_of(encoder):
            # the method, not the module: a compiled module would add a prefix to its parameters' names
            forward: Any = torch.compile(layer.forward, dynamic=True)
            layer.forward = forward


def recompute_layers(model: TrunkModel) -> None:
    """Recompute each layer of a model's encoders and heads; losses, and the names of parameters, stay the same."""
    for layer in _layers(model):
        # the reentrant kind gives a layer no gradient if its inputs have none, as above frozen embeddings
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
