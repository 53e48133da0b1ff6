"""The optimizer; Adamax, compared with PyTorch's implementation."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from deepsiam.trainer.training.engine.optimizer import Adamax, build_optimizer
from deepsiam.trainer.training.recipe.schema import OptimizerConfig

KEYS = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-6}


def gradients(parameters: list[torch.Tensor]) -> Iterator[None]:
    """Give the parameters ten random gradients; the first row of the first parameter never gets one."""
    g = torch.Generator().manual_seed(2)
    for _ in range(10):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=g)
        parameters[0].grad[0] = 0.0  # type: ignore[index]
        yield


def parameters() -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return [torch.randn(*shape, generator=g) for shape in ((5, 3), (4,))]


def test_without_decay_it_is_pytorchs_to_the_bit() -> None:
    own, theirs = parameters(), parameters()
    optimizers = Adamax([{"params": own, "weight_decay": 0.0}], **KEYS), torch.optim.Adamax(theirs, **KEYS)
    for _ in zip(gradients(own), gradients(theirs), strict=True):
        for optimizer in optimizers:
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(own, theirs, strict=True))
    states = [[*optimizer.state.values()] for optimizer in optimizers]
    for a, b in zip(*states, strict=True):
        assert torch.equal(a["exp_avg"], b["exp_avg"])
        assert torch.equal(a["exp_avg_sq"], b["exp_inf"])
        assert torch.equal(a["step"], b["step"])


def test_the_decay_is_that_of_adamw() -> None:
    """A group decays by lr * weight_decay at each step, independently of its gradient."""
    own, theirs = parameters(), parameters()
    groups = [{"params": [p], "weight_decay": decay} for p, decay in zip(own, (0.5, 0.0), strict=True)]
    optimizer, plain = Adamax(groups, **KEYS), torch.optim.Adamax(theirs, **KEYS)
    first_row = own[0][0].clone()
    for _ in zip(gradients(own), gradients(theirs), strict=True):
        theirs[0] *= 1 - KEYS["lr"] * 0.5
        optimizer.step()
        plain.step()
        assert all(torch.equal(a, b) for a, b in zip(own, theirs, strict=True))
    torch.testing.assert_close(own[0][0], first_row * (1 - KEYS["lr"] * 0.5) ** 10)


def test_it_continues_from_its_state() -> None:
    whole, halves = parameters(), parameters()
    one = Adamax([{"params": whole, "weight_decay": 0.1}], **KEYS)
    for _ in gradients(whole):
        one.step()
    first = Adamax([{"params": halves, "weight_decay": 0.1}], **KEYS)
    second = Adamax([{"params": halves, "weight_decay": 0.1}], lr=1.0, betas=(0.1, 0.1), eps=1.0)
    for number, _ in enumerate(gradients(halves)):
        if number == 5:
            second.load_state_dict(copy.deepcopy(first.state_dict()))
        (first if number < 5 else second).step()
    assert all(torch.equal(a, b) for a, b in zip(whole, halves, strict=True))


@pytest.mark.parametrize("with_gradient", [0, 1])
def test_a_parameter_without_gradient_stays_as_it_is(with_gradient: int) -> None:
    own, before = parameters(), parameters()
    own[with_gradient].grad = torch.ones_like(own[with_gradient])
    Adamax([{"params": own, "weight_decay": 0.5}], **KEYS).step()
    same = [torch.equal(a, b) for a, b in zip(own, before, strict=True)]
    assert same == [with_gradient != 0, with_gradient != 1]


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
