"""The optimizer."""

import torch
from torch import nn

from trainer.training.engine.adamax import Adamax
from trainer.training.engine.optimizer import build_optimizer
from trainer.training.recipe.schema import OptimizerConfig


def test_matrices_decay_and_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[2].requires_grad_(False)
    decayed, kept = build_optimizer(model, OptimizerConfig(lr=0.1, weight_decay=0.5, betas=(0.8, 0.9))).param_groups
    assert [id(p) for p in decayed["params"]] == [id(model[0].weight)]
    assert [id(p) for p in kept["params"]] == [id(model[0].bias), id(model[1].weight), id(model[1].bias)]
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.5, 0.0)
    assert all((group["lr"], group["betas"]) == (0.1, (0.8, 0.9)) for group in (decayed, kept))


def test_a_model_without_biases_has_one_group() -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.LayerNorm(4))
    model[1].requires_grad_(False)
    (group,) = build_optimizer(model, OptimizerConfig(lr=0.1)).param_groups
    assert [id(p) for p in group["params"]] == [id(model[0].weight)]


def test_frozen_parameters_have_no_state_and_do_not_decay() -> None:
    for name in ("adamw", "adamax"):
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        model[0].requires_grad_(False)
        before = model[0].weight.clone()
        keys = OptimizerConfig.model_validate({"name": name, "lr": 0.1, "weight_decay": 0.5})
        optimizer = build_optimizer(model, keys)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        assert torch.equal(model[0].weight, before)
        assert set(map(id, optimizer.state)) == set(map(id, model[1].parameters()))


def test_the_optimizer_is_the_one_that_the_recipe_names() -> None:
    keys = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}
    assert type(build_optimizer(nn.Linear(2, 2), OptimizerConfig.model_validate(keys))) is torch.optim.AdamW
    adamax = build_optimizer(nn.Linear(2, 2), OptimizerConfig.model_validate({**keys, "name": "adamax"}))
    assert type(adamax) is Adamax
    for group, decay in zip(adamax.param_groups, (0.01, 0.0), strict=True):
        assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.1, (0.8, 0.9), 1e-3, decay)
