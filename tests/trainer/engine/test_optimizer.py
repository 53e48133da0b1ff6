"""The optimizer."""

from torch import nn

from trainer.engine.optimizer import build_optimizer
from trainer.recipe.schema import OptimizerConfig


def test_matrices_decay_and_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[2].requires_grad_(False)
    decayed, kept = build_optimizer(model, OptimizerConfig(lr=0.1, weight_decay=0.5, betas=(0.8, 0.9))).param_groups
    assert [id(p) for p in decayed["params"]] == [id(model[0].weight)]
    assert [id(p) for p in kept["params"]] == [id(model[0].bias), id(model[1].weight), id(model[1].bias)]
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.5, 0.0)
    assert all((group["lr"], group["betas"]) == (0.1, (0.8, 0.9)) for group in (decayed, kept))
