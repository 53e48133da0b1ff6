"""The optimizer that a recipe asks for: torch's AdamW, Adamax in a form that DeepSpeed can convert, or a user's own.

Made once, with the engine, which sets the learning rate before each step. DeepSpeed checks the gradients in each step,
between the backward pass and the update: with a few kernels instead of some sixteen for each parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import deepspeed.comm as dist
import torch
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS
from torch import Tensor, nn
from torch.optim.adamax import adamax as update

from deepsiam.trainer.training.engine.device import this_device
from deepsiam.trainer.training.recipe.schema import OPTIMIZERS, OptimizerConfig

INVALID = -1.0  # DeepSpeed's norm of gradients that are not finite


def build_optimizer(model: nn.Module, keys: OptimizerConfig) -> torch.optim.Optimizer:
    """Build the optimizer of a recipe's keys over a model's trainable parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [  # matrices decay; biases and normalisation weights do not, as in BERT
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": keys.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]  # ZeRO cannot partition an empty group
    optimizer = OPTIMIZERS[keys.name](groups, keys)
    # ZeRO's list: one of the user's own may need more of a parameter than its part, which ZeRO gives no optimizer
    if type(optimizer) not in ZERO_SUPPORTED_OPTIMIZERS:
        ZERO_SUPPORTED_OPTIMIZERS.append(type(optimizer))
    return optimizer


def adamw(groups: list[dict[str, Any]], keys: OptimizerConfig) -> torch.optim.AdamW:
    """Build torch's AdamW."""
    # one fused pass over the states: on a CPU a quarter of the time of torch's default, on a GPU fewer bytes moved
    fused = True if this_device().type in ("cpu", "cuda") else None
    return torch.optim.AdamW(groups, lr=keys.lr, betas=keys.betas, eps=keys.eps, fused=fused)


def adamax(groups: list[dict[str, Any]], keys: OptimizerConfig) -> Adamax:
    """Build Adamax."""
    return Adamax(groups, lr=keys.lr, betas=keys.betas, eps=keys.eps)


class Adamax(torch.optim.Optimizer):
    """torch.optim.Adamax (Kingma & Ba, 2015, section 7.1), with AdamW's decoupled weight decay.

    With an L2 penalty in the gradient, as in PyTorch, a weight with no other gradient, such as the embedding of a rare
    token, would move towards zero by a whole `lr` at each step, because Adamax divides the penalty by its own size.

    The infinity norm is stored as `exp_avg_sq`, AdamW's name for the second moment: DeepSpeed converts a checkpoint to
    another number of ranks only if the states have AdamW's names.
    """

    def __init__(
        self, groups: Iterable[Mapping[str, Any]], *, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        """Optimise parameter groups, each with its `weight_decay`."""
        super().__init__(map(dict, groups), {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here uses a closure
        """Take one step with the current gradients."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self._state_of(parameter) for parameter in parameters]
            for parameter in parameters:  # on the weight itself, not through the gradient
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
            update(
                parameters,
                [parameter.grad for parameter in parameters],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [state["step"] for state in states],
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                eps=group["eps"],
                weight_decay=0.0,
            )

    def _state_of(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state


def check_in_few_kernels(optimizer: object) -> None:
    """Replace the checks of a DeepSpeed optimizer of ZeRO-1 or 2; those of other stages stay as they are.

    A rank that holds all of the optimizer's states, as a single GPU does, started 3,300 kernels a step for BERT-base's
    (`benchmarks.step.on_gpu` on an H200): Python took longer to start those than the GPU took for the model.
    """
    if isinstance(optimizer, DeepSpeedZeroOptimizer):
        optimizer.has_overflow_partitioned_grads_serial = partial(_overflows, optimizer)
        optimizer.get_grad_norm_direct = partial(_norm, optimizer)


def _overflows(optimizer: Any) -> Tensor:
    """Return whether a gradient of this rank's part is not finite, bool [1]."""
    groups = optimizer.averaged_gradients.values()
    gradients = [g for group in groups for g in group or () if g is not None and g.numel()]
    if not gradients:
        return torch.zeros(1, dtype=torch.bool, device=optimizer.device)
    largest = torch._foreach_norm(gradients, math.inf)  # one kernel for many gradients; NaN where one has it
    return torch.stack(largest).isfinite().all().logical_not()[None]


def _norm(optimizer: Any, gradients: Iterable[Tensor], parameters: object, norm_type: float = 2) -> Tensor:
    """Return the Euclidean norm of a group's gradients over all ranks, fp32, or `INVALID`; summed in fp64."""
    assert norm_type == 2
    gradients = [g for g in gradients if not getattr(g, "_zero_padding", False)]
    norms = (
        torch._foreach_norm(gradients, 2, dtype=torch.float64)
        if gradients
        else [torch.zeros((), device=optimizer.device)]
    )
    squares = torch.stack(norms).pow(2).sum().float()
    dist.all_reduce(squares, group=optimizer.dp_process_group)
    norm = squares.pow(0.5)
    return torch.where(norm.isfinite(), norm, INVALID)
