"""The checks of gradients in few kernels are DeepSpeed's own, to the bit."""

from __future__ import annotations

import math
from types import SimpleNamespace

import deepspeed.comm
import pytest
import torch
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from torch import Tensor

from deepsiam.trainer.training.engine.few_kernels import check_in_few_kernels

SHAPES = ((3,), (7, 64), (0,), (768,), (96, 33), (1,))


class Optimizer(DeepSpeedZeroOptimizer):  # type: ignore[misc]
    """DeepSpeed's, with gradients and nothing else."""

    def __init__(self, gradients: list[Tensor | None]) -> None:
        self.averaged_gradients = {0: gradients, 1: None, 2: [torch.ones(2, dtype=gradients[0].dtype)]}
        self.bit16_groups = [0]
        self.dp_process_group = self.model_parallel_group = None
        self.model_parallel_rank, self.device = 0, torch.device("cpu")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed.comm, "all_reduce", lambda *_, **__: None)


def gradients(dtype: torch.dtype, odd: float = 1.0) -> list[Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(shape).to(dtype) for shape in SHAPES]
    made[3][500] = odd
    return made


@pytest.mark.parametrize("odd", [1.0, 3e4, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norm_and_overflow_are_deepspeed_s(dtype: torch.dtype, odd: float) -> None:
    own = gradients(dtype, odd)
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
