"""The optimizer that a recipe asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainer.training.engine.adamax import Adamax
from trainer.training.engine.device import this_device
from trainer.training.recipe.schema import OptimizerConfig


def build_optimizer(model: nn.Module, keys: OptimizerConfig) -> torch.optim.Optimizer:
    """Build AdamW or Adamax over a model's trainable parameters."""
    groups = parameter_groups(model, keys.weight_decay)
    if keys.name == "adamax":
        return Adamax(groups, lr=keys.lr, betas=keys.betas, eps=keys.eps)
    # one fused pass over the states: on a CPU a quarter of the time of torch's default, on a GPU fewer bytes moved
    fused = True if this_device().type in ("cpu", "cuda") else None
    return torch.optim.AdamW(groups, lr=keys.lr, betas=keys.betas, eps=keys.eps, fused=fused)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split a model's trainable parameters: matrices decay; biases and normalisation weights do not, as in BERT."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]  # ZeRO cannot partition an empty group
