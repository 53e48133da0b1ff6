"""A moving average of the weights, in fp32 (the recipe's `optimizer.ema`).

Made with the engine, and updated after each optimizer step. Every rank averages its own part of the weights, so the
average takes 4 bytes a weight over all ranks, and no step exchanges anything for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param
from safetensors import safe_open
from torch import Tensor, nn

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.errors import SharedError


class MovingAverage:
    """The mean of the weights after each step so far, in which a step counts `decay` times as much as the next one.

    The initial weights have no share in it, as in Adam's corrected moments: short runs need no other decay.
    """

    def __init__(self, optimizer: Any, decay: float) -> None:
        """Average what DeepSpeed's `optimizer` updates; raise SharedError where that is not fp32 in memory."""
        self.optimizer, self.decay = optimizer, decay
        # stage 3 shows its base optimizer the weights in a step only
        stage_3 = getattr(optimizer, "fp32_partitioned_groups_flat", None)
        self.weights: list[Tensor] = stage_3 or [p for group in optimizer.param_groups for p in group["params"]]
        for is_used, feature, remedy in (
            (getattr(optimizer, "swap_optimizer", False), "keeps them on a disk", "offload to the CPU instead"),
            (any(w.dtype != torch.float32 for w in self.weights), "has them in half precision", "keep fp32 ones"),
            (not _refreshes(optimizer), "is half precision without ZeRO", "use zero_optimization.stage 1"),
        ):
            if is_used:
                raise SharedError(f"optimizer.ema: averages fp32 weights, and deepspeed's file {feature}: {remedy}")
        self.averages = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def update(self, steps: int) -> None:
        """Add this rank's weights after `steps` steps, of which all but this one have been added."""
        share = (1 - self.decay) / (1 - self.decay**steps)
        torch._foreach_lerp_(self.averages, self.weights, share)

    def exchange(self) -> None:
        """Give the model the average, and keep the weights in its place; or back again, to the bit. All ranks call."""
        self._exchange_parts()
        optimizer = self.optimizer
        if isinstance(optimizer, DeepSpeedZeroOptimizer_Stage3):  # what its own step does after the update
            optimizer._partition_all_parameters()
            for group in range(len(optimizer.fp16_groups)):
                optimizer._reassign_or_swap_out_partitioned_parameters(group)
            if whole := optimizer.persistent_parameters:
                whole[0].all_gather(whole)
            optimizer.invalidate_secondary_tensor()
        elif hasattr(optimizer, "update_lp_params"):
            optimizer.update_lp_params()

    def load(self, file: Path, parameters: Mapping[str, nn.Parameter], shapes: Mapping[str, Any], world: World) -> None:
        """Read this rank's part of the whole average from a file of weights; raise InputError if it is of others."""
        self._exchange_parts()
        with safe_open(file, "pt") as weights:
            if {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()} != dict(shapes):  # noqa: SIM118
                raise InputError(f"{file}: its weights are not those of the model: resume from another checkpoint")
            for name, parameter in parameters.items():
                _set(parameter, weights.get_tensor(name), world)
        self._exchange_parts()

    @torch.no_grad()
    def _exchange_parts(self) -> None:
        for weight, average in zip(self.weights, self.averages, strict=True):
            copy = weight.clone()
            weight.copy_(average)
            average.copy_(copy)


def _refreshes(optimizer: Any) -> bool:
    """Return whether `exchange` can give the model what the optimizer has."""
    own_weights = isinstance(optimizer, torch.optim.Optimizer)  # without ZeRO in fp32: those of the model
    return own_weights or hasattr(optimizer, "update_lp_params") or isinstance(optimizer, DeepSpeedZeroOptimizer_Stage3)


@torch.no_grad()
def _set(parameter: nn.Parameter, weight: Tensor, world: World) -> None:
    """Set this rank's part of what the optimizer updates of a parameter."""
    if hasattr(parameter, "ds_tensor"):  # stage 3: its own function for this forgets that the last part is padded
        size = parameter.ds_tensor.numel()
        padded = nn.functional.pad(weight.flatten(), (0, size * world.size - weight.numel()))
        safe_set_local_fp32_param(parameter, padded[size * world.rank : size * (world.rank + 1)])
    elif hasattr(parameter, "_hp_mapping"):
        safe_set_full_fp32_param(parameter, weight)
    else:
        parameter.copy_(weight)
