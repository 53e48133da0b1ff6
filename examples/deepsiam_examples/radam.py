"""An optimizer: RAdam (Liu et al., 2020), whose states have AdamW's names, so that other numbers of ranks resume it."""

from typing import Any

import torch

from deepsiam import register
from deepsiam.trainer.training.recipe.schema import OptimizerConfig


def radam(groups: list[dict[str, Any]], keys: OptimizerConfig) -> torch.optim.Optimizer:
    """Build torch's RAdam, with AdamW's weight decay."""
    return torch.optim.RAdam(groups, lr=keys.lr, betas=keys.betas, eps=keys.eps, decoupled_weight_decay=True)


register("optimizer", "radam", radam)
