"""The optimizer: Adamax, compared with PyTorch's implementation; checks of gradients, compared with DeepSpeed's own."""

import copy
import math
from collections.abc import Iterator
from types import SimpleNamespace

import deepspeed.comm
import pytest
import torch
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from torch import Tensor, nn

from deepsiam.trainer.training.engine.optimizer import Adamax, build_optimizer, check_in_few_kernels
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


def test_matrices_decay_and_neither_frozen_parameters_nor_empty_groups_are_there() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[2].requires_grad_(False)
    decayed, kept = build_optimizer(model, OptimizerConfig(lr=0.1, weight_decay=0.5, betas=(0.8, 0.9))).param_groups
    assert [id(p) for p in decayed["params"]] == [id(model[0].weight)]
    assert [id(p) for p in kept["params"]] == [id(model[0].bias), id(model[1].weight), id(model[1].bias)]
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.5, 0.0)
    assert all((group["lr"], group["betas"]) == (0.1, (0.8, 0.9)) for group in (decayed, kept))
    (group,) = build_optimizer(nn.Linear(3, 4, bias=False), OptimizerConfig(lr=0.1)).param_groups
    assert group["weight_decay"] == 0.01


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


SHAPES = ((3,), (7, 64), (0,), (768,), (96, 33), (1,))


class Optimizer(DeepSpeedZeroOptimizer):  # type: ignore[misc]
    """DeepSpeed's, with gradients and nothing else."""

    def __init__(self, gradients: list[Tensor | None]) -> None:
        self.averaged_gradients = {0: gradients, 1: None, 2: [torch.ones(2, dtype=gradients[0].dtype)]}
        self.bit16_groups = [0]
        self.dp_process_group = self.model_parallel_group = None
        self.model_parallel_rank, self.device = 0, torch.device("cpu")


@pytest.fixture
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed.comm, "all_reduce", lambda *_, **__: None)


def made_gradients(dtype: torch.dtype, odd: float = 1.0) -> list[Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(shape).to(dtype) for shape in SHAPES]
    made[3][500] = odd
    return made


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("odd", [1.0, 3e4, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norm_and_overflow_are_deepspeed_s(dtype: torch.dtype, odd: float) -> None:
    own = made_gradients(dtype, odd)
    padding = torch.full((5,), 9, dtype=dtype)
    padding._zero_padding = True  # type: ignore[attr-defined]
    optimizer = Optimizer([*own, None])
    parameters = [SimpleNamespace() for _ in own]
    expected = optimizer.get_grad_norm_direct([*own, padding], parameters)
    overflows = optimizer.has_overflow_partitioned_grads_serial()
    check_in_few_kernels(optimizer)
    found = optimizer.get_grad_norm_direct([*own, padding], parameters)
    assert found.dtype == expected.dtype
    assert found.item() == expected.item()
    assert optimizer.has_overflow_partitioned_grads_serial().tolist() == overflows.tolist() == [not math.isfinite(odd)]


@pytest.mark.usefixtures("_alone")
def test_a_rank_may_hold_no_gradients() -> None:
    optimizer = Optimizer([torch.zeros(0)])
    optimizer.averaged_gradients = {0: None, 1: [torch.zeros(0)]}
    check_in_few_kernels(optimizer)
    assert optimizer.has_overflow_partitioned_grads_serial().tolist() == [False]
    assert optimizer.get_grad_norm_direct([], []).item() == 0


def test_other_stages_keep_their_own() -> None:
    stage_3 = SimpleNamespace(get_grad_norm_direct=len)
    check_in_few_kernels(stage_3)
    assert stage_3.get_grad_norm_direct is len
