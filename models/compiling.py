"""Compile the layers of a model's encoders, for GPUs: PyTorch then fuses their element-wise kernels."""

from __future__ import annotations

from typing import Any

import torch

from deepsiam.models.trunk import TrunkModel, encoders_of, layers_of


def compile_layers(model: TrunkModel) -> None:
    """Let torch.compile make each layer of a model's encoders into fewer kernels, at its first use.

    The layers of an encoder have one program, for inputs of any length. Names of parameters stay as they are. Call
    `recompute_layers` after this, not before: the compiler does not look into layers that recompute.

    Raises:
        ValueError: the layers are not found.
    """
    for encoder in encoders_of(model):
        for layer in layers_of(encoder):
            forward: Any = torch.compile(layer.forward, dynamic=True)
            layer.forward = forward
