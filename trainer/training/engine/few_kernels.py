"""DeepSpeed's checks of the gradients at ZeRO-1 and 2, in a few kernels instead of some sixteen for each parameter.

Put in place when the engine is made; DeepSpeed calls it in each step, between the backward pass and the update.

A rank that holds all of the optimizer's states, as a single GPU does, started 3,300 kernels a step for BERT-base's:
Python took longer to start those than the GPU took for the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import deepspeed.comm as dist
import torch
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from torch import Tensor

INVALID = -1.0  # DeepSpeed's norm of gradients that are not finite


def check_in_few_kernels(optimizer: object) -> None:
    """Replace the checks of a DeepSpeed optimizer; those of other stages stay as they are."""
    if isinstance(optimizer, DeepSpeedZeroOptimizer):
        optimizer.has_overflow_partitioned_grads_serial = partial(_overflows, optimizer)
        optimizer.get_grad_norm_direct = partial(_norm, optimizer)


def _overflows(optimizer: Any) -> Tensor:
    """Return whether a gradient of this rank's part is not finite, bool [1]."""
    groups = optimizer.averaged_gradients.values()
    gradients = [g for group in groups for g in group or () if g is not None and g.numel()]
    if not gradients:
        return torch.zeros(1, dtype=torch.bool, device=optimizer.device)
    largest = torch._foreach_norm(gradients, math.inf)  # NaN where a gradient has one
    return torch.stack(largest).isfinite().all().logical_not()[None]


def _norm(optimizer: Any, gradients: Iterable[Tensor], parameters: object, norm_type: float = 2) -> Tensor:
    """Return the Euclidean norm of a group's gradients over all ranks, fp32, or `INVALID`; summed in fp64."""
    assert norm_type == 2
    own = [g for g in gradients if not getattr(g, "_zero_padding", False)]
    norms = torch._foreach_norm(own, 2, dtype=torch.float64) if own else [torch.zeros((), device=optimizer.device)]
    squares = torch.stack(norms).pow(2).sum().float()
    dist.all_reduce(squares, group=optimizer.dp_process_group)
    norm = squares.pow(0.5)
    return torch.where(norm.isfinite(), norm, INVALID)
