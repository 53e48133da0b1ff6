"""Adamax beside PyTorch's, checks of gradients beside DeepSpeed's own, and the moving average without ranks.

tests/trainer/launches/test_moving_average.py has the average's ZeRO, checkpoints and probes.
"""

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deepspeed.comm
import pytest
import torch
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from safetensors.torch import save_file
from torch import Tensor, nn

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.engine.moving_average import MovingAverage
from deepsiam.trainer.training.engine.optimizer import Adamax, build_optimizer, check_in_few_kernels
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, OptimizerConfig
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.runs import save_run, set_invariants, write_run

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


def test_it_is_pytorchs_to_the_bit_with_the_decay_of_adamw() -> None:
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
    for a, b in zip(optimizer.state.values(), plain.state.values(), strict=True):
        assert torch.equal(a["exp_avg"], b["exp_avg"])
        assert torch.equal(a["exp_avg_sq"], b["exp_inf"])
        assert torch.equal(a["step"], b["step"])


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


def test_the_optimizer_is_the_one_that_the_recipe_names() -> None:
    assert type(build_optimizer(nn.Linear(2, 2), OptimizerConfig(lr=0.1))) is torch.optim.AdamW
    keys = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}
    adamax = build_optimizer(nn.Linear(2, 2), OptimizerConfig.model_validate({**keys, "name": "adamax"}))
    assert type(adamax) is Adamax
    for group, decay in zip(adamax.param_groups, (0.01, 0.0), strict=True):
        assert group.items() >= {**keys, "weight_decay": decay}.items()


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


WEIGHTS = [torch.nn.Parameter(torch.randn(3, 5)), torch.nn.Parameter(torch.randn(4))]


def test_after_many_steps_it_is_the_weighted_mean_in_fp64() -> None:
    weight, steps, decay = torch.nn.Parameter(torch.randn(50)), 2000, 0.999
    average, after = MovingAverage(torch.optim.SGD([weight], lr=0.1), decay), []
    generator = torch.Generator().manual_seed(0)
    for step in range(1, steps + 1):
        with torch.no_grad():
            weight.add_(torch.randn(50, generator=generator) * 0.01)
        average.update(step)
        after.append(weight.detach().double())
        if step in (1, 2, 3, 100, steps):
            shares = decay ** torch.arange(step - 1, -1, -1, dtype=torch.float64)
            expected = (shares / shares.sum()) @ torch.stack(after)
            torch.testing.assert_close(average.averages[0].double(), expected, rtol=2e-6, atol=2e-6)
    assert torch.equal(weight.detach().double(), after[-1])


def test_it_is_loaded_from_its_models_file_and_exchanged_twice_all_is_as_before_to_the_bit(tmp_path: Path) -> None:
    average = MovingAverage(torch.optim.SGD(WEIGHTS, lr=0.1), 0.9)
    saved = {"a": torch.randn(3, 5), "b": torch.randn(4)}
    shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    weights = [weight.detach().clone() for weight in WEIGHTS]
    save_file(saved, tmp_path / "saved")
    average.load(tmp_path / "saved", dict(zip(saved, WEIGHTS, strict=True)), shapes, World(0, 1, 0, 1))
    for exchanged in (False, True, False):
        assert all(map(torch.equal, WEIGHTS, saved.values() if exchanged else weights))
        assert all(map(torch.equal, average.averages, weights if exchanged else saved.values()))
        average.exchange()
    average.exchange()
    with pytest.raises(InputError, match="saved: its weights are not those of the model"):
        average.load(tmp_path / "saved", {}, {**shapes, "b": (5,)}, World(0, 1, 0, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"swap_optimizer": True}, "keeps them on a disk: offload to the CPU instead"),
        ({"param_groups": [{"params": [torch.zeros(2, dtype=torch.bfloat16)]}]}, "has them in half precision"),
        ({}, "is half precision without ZeRO: use zero_optimization.stage 1"),
    ],
)
def test_what_deepspeed_does_not_keep_in_fp32_in_memory_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SharedError, match=f"optimizer.ema: averages fp32 weights, and deepspeed's file {message}"):
        MovingAverage(SimpleNamespace(**{"param_groups": [{"params": [torch.zeros(2)]}], **changes}), 0.9)


def test_frozen_weights_are_refused_before_the_training(toy_collection: Path, tmp_path: Path) -> None:
    start = write_run(tmp_path / "start", toy_collection / "tokenizer.json", name="mlm")
    for trained in (0, 1, "all_but_embeddings", {"lora": {"rank": 2, "targets": ["query"]}}):
        changes = {"method": {"projection": 8}, "optimizer": {"lr": 1e-3, "train": trained, "ema": 0.9}}
        values = toy.finetune_values(tmp_path / "run", toy_collection, init_from=str(start), **changes)
        with pytest.raises(InputError, match="optimizer.ema: averages all weights, and this run leaves some as they a"):
            finetuning.build(build(FinetuneRecipe, values, "test"))


def test_a_resumed_run_keeps_its_decay(toy_collection: Path, tmp_path: Path) -> None:
    def job(**optimizer: float) -> Any:
        values = toy.finetune_values(tmp_path / "run", toy_collection, trunk=toy.TRUNK)
        return finetuning.build(build(FinetuneRecipe, {**values, "optimizer": {"lr": 1e-3, **optimizer}}, "test"))

    without, averaged = job(), job(ema=0.9)
    assert "ema" not in without.resume_invariants["optimizer"]  # as in checkpoints of older code
    for saved, resumed, message in (
        (without, averaged, "saved with optimizer.ema=None, the recipe now says 0.9"),
        (averaged, without, "saved with optimizer.ema=0.9, the recipe now says None"),
        (averaged, job(ema=0.99), "saved with optimizer.ema=0.9, the recipe now says 0.99"),
    ):
        run = tmp_path / f"{id(saved)}-{id(resumed)}"
        set_invariants(save_run(run, saved), saved.resume_invariants)
        with pytest.raises(InputError, match=message):
            checkpoint.check_continues(checkpoint.find(run), resumed.resume_invariants)
