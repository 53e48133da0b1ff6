"""The DeepSpeed engine: processes, precision, one accumulated and clipped optimizer step."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param
from torch import nn

from data_prep.errors import InputError
from models.task import MicroBatch
from trainer import ds_config
from trainer.recipe import Optimizer, Recipe


@dataclass(frozen=True)
class World:
    """This process among all: global rank, number of ranks, rank and number of ranks on this host."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def from_environment(cls) -> World:
        """What the launcher says; one process alone where there is no launcher."""
        names = {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "LOCAL_SIZE": os.environ.get("WORLD_SIZE", "1"),
        }
        return cls(*(int(os.environ.get(name, default)) for name, default in names.items()))


def join(world: World) -> None:
    """Make this process one of the world's; raises InputError where the rendezvous port is taken."""
    for name, value in {"RANK": world.rank, "WORLD_SIZE": world.size, "LOCAL_RANK": world.local_rank}.items():
        os.environ[name] = str(value)
    address = os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    port = os.environ.setdefault("MASTER_PORT", "29500")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # DeepSpeed calls collectives by names that newer torch has renamed; no user can act on that
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # gloo alone serves CPU ranks; DeepSpeed's shared-memory kernel beside it would need a C++ compiler to start
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world.local_size))
    try:
        deepspeed.init_distributed(verbose=False)
    except (dist.DistNetworkError, RuntimeError) as error:
        if "EADDRINUSE" not in str(error) and "address already in use" not in str(error):
            raise
        raise InputError(
            f"port {port} of {address} is in use, by another run perhaps: give deepspeed another --master_port"
        ) from None


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step leaves: gradient norm before clipping, loss scale, whether fp16 overflow skipped it."""

    grad_norm: float
    loss_scale: float
    skipped: bool


class Engine:
    """A model under DeepSpeed, stepped by global sums over counts.

    The gradient of a step is that of sum_k weight_k * (sum of losses of term k over all ranks and micro-batches) /
    (number of targets of term k over all ranks and micro-batches): what one process would compute on the whole batch.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, weights: Mapping[str, float], world: World):
        self.world, self.weights = world, dict(weights)
        _, config = ds_config.load(recipe.deepspeed)
        optimizer = torch.optim.AdamW(_parameter_groups(model, recipe.optimizer), **_adam(recipe.optimizer))
        self.deepspeed, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=ds_config.complete(config, recipe, world.size)
        )
        self.accumulation: int = self.deepspeed.gradient_accumulation_steps()
        self.device: torch.device = self.deepspeed.device
        self.losses: dict[str, torch.Tensor] = {}

    def step(self, micro_batches: Sequence[MicroBatch], seeds: Iterable[int], lr: float) -> StepResult:
        """One optimizer step on this rank's micro-batches of it; `seeds` key each one's dropout.

        `self.losses` then holds this rank's share of every term's mean loss, as fp32 scalars on the device: summed
        over the ranks they are the global token means.
        """
        targets = self._global_counts(micro_batches)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.losses = {term: torch.zeros((), device=self.device) for term in self.weights}
        skipped_before = self.deepspeed.skipped_steps
        for micro_batch, seed in zip(micro_batches, seeds, strict=True):
            torch.manual_seed(seed)
            total: Any = 0.0
            for term, loss_sum in self.deepspeed(**self._tensors(micro_batch)).items():
                mean_share = loss_sum / targets[term]
                self.losses[term] += mean_share.detach()
                total = total + self.weights[term] * mean_share
            # DeepSpeed averages over the ranks and the accumulated micro-batches; the shares are to be added
            self.deepspeed.backward(total * (self.world.size * self.accumulation))
            self.deepspeed.step()
        return StepResult(
            grad_norm=float(self.deepspeed.get_global_grad_norm() or 0.0),
            loss_scale=float(getattr(self.optimizer, "cur_scale", 1.0)),
            skipped=self.deepspeed.skipped_steps > skipped_before,
        )

    def full_weights(self) -> dict[str, torch.Tensor]:
        """Every parameter in fp32 on the CPU, whatever the ZeRO stage; all ranks call, tied ones stand once."""
        weights = {}
        for name, parameter in self.deepspeed.module.named_parameters():
            full = safe_get_full_fp32_param(parameter)
            # None: DeepSpeed keeps no partitioned master copy (stage 0)
            weights[name] = (parameter.data if full is None else full).detach().float().cpu().contiguous()
        return weights

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Element-wise sum over all ranks, in place."""
        values = values.to(self.device)
        dist.all_reduce(values)
        return values

    def save(self, folder: Path, tag: str) -> None:
        """DeepSpeed's own files, for an exact continuation; all ranks call."""
        self.deepspeed.save_checkpoint(str(folder), tag=tag, save_latest=False)

    def load(self, folder: Path, tag: str) -> None:
        """Take up what `save` wrote; all ranks call. Only for verified folders: DeepSpeed unpickles its files."""
        loaded, _ = self.deepspeed.load_checkpoint(str(folder), tag=tag)
        if loaded is None:
            raise InputError(f"{folder / tag}: DeepSpeed finds no checkpoint of its own in there")

    def _tensors(self, micro_batch: MicroBatch) -> dict[str, torch.Tensor]:
        return {k: torch.from_numpy(v).to(self.device, non_blocking=True) for k, v in micro_batch.arrays.items()}

    def _global_counts(self, micro_batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Targets of every term over all ranks and micro-batches; at least 1, where a step has none of a term."""
        counts = [sum(batch.counts[term] for batch in micro_batches) for term in self.weights]
        total = self.sum_over_ranks(torch.tensor(counts, dtype=torch.int64))
        return {term: float(max(1, n)) for term, n in zip(self.weights, total.tolist(), strict=True)}


def _parameter_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """Matrices decay; biases and normalisation weights do not, as in BERT."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": optimizer.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _adam(optimizer: Optimizer) -> dict[str, Any]:
    return {"lr": optimizer.lr, "betas": optimizer.betas, "eps": optimizer.eps}
