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
import numpy as np
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.utils import safe_get_full_fp32_param
from torch import nn

from data_prep.errors import InputError
from models.encoder import TrunkModel
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


def device_memory() -> int:
    """Bytes of this rank's accelerator; on a CPU its share of the host's."""
    accelerator = get_accelerator()
    total = int(accelerator.total_memory())
    return total // World.from_environment().local_size if accelerator.device_name() == "cpu" else total


_joined = False


def has_joined() -> bool:
    """Whether this process has been one of a world's."""
    return _joined


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
    global _joined
    try:
        deepspeed.init_distributed(verbose=False)
    except (dist.DistNetworkError, RuntimeError) as error:
        if "EADDRINUSE" not in str(error) and "address already in use" not in str(error):
            raise
        raise InputError(
            f"port {port} of {address} is in use, by another run perhaps: give deepspeed another --master_port"
        ) from None
    _joined = True


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step leaves: gradient norm before clipping, loss scale, whether DeepSpeed skipped it.

    `losses` are this rank's sums, fp32 [micro-batches, terms] on the device.
    """

    grad_norm: float
    loss_scale: float
    skipped: bool
    losses: torch.Tensor


class Engine:
    """A model under DeepSpeed, stepped by global sums over counts.

    The gradient of a step is that of sum_k weight_k * (sum of losses of term k over all ranks and micro-batches) /
    (number of targets of term k over all ranks and micro-batches): what one process would compute on the whole batch.
    """

    def __init__(self, model: TrunkModel, recipe: Recipe, weights: Mapping[str, float], world: World):
        self.model, self.world, self.weights = model, world, dict(weights)
        _, config = ds_config.load(recipe.deepspeed)
        optimizer = torch.optim.AdamW(_parameter_groups(model, recipe.optimizer), **_adam(recipe.optimizer))
        self.deepspeed, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=ds_config.complete(config, recipe, world.size)
        )
        self.deepspeed.checkpoint_engine = self.files = CheckpointFiles()
        self.deepspeed._copy_recovery_script = _nothing  # a script in every checkpoint, and one more write to fail
        self.accumulation: int = self.deepspeed.gradient_accumulation_steps()
        self.device: torch.device = self.deepspeed.device
        self.fp16: bool = self.deepspeed.fp16_enabled()

    def step(
        self, micro_batches: Sequence[MicroBatch], targets: Mapping[str, int], seeds: Iterable[int], lr: float
    ) -> StepResult:
        """One optimizer step on this rank's micro-batches of it; `seeds` key each one's dropout.

        `targets` are the targets of every loss term in the whole step, over all ranks.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        losses = []
        skipped_before = self.deepspeed.skipped_steps
        for micro_batch, seed in zip(micro_batches, seeds, strict=True):
            torch.manual_seed(seed)
            sums = self.deepspeed(**self._tensors(micro_batch))
            losses.append(torch.stack([sums[term].detach() for term in self.weights]))
            # at least 1, where a step has no target of a term
            total: Any = sum(weight * (sums[term] / max(1, targets[term])) for term, weight in self.weights.items())
            # DeepSpeed averages over the ranks and the accumulated micro-batches; the shares are to be added
            self.deepspeed.backward(total * (self.world.size * self.accumulation))
            self.deepspeed.step()
        return StepResult(
            grad_norm=float(self.deepspeed.get_global_grad_norm() or 0.0),
            loss_scale=float(getattr(self.optimizer, "cur_scale", 1.0)),
            skipped=self.deepspeed.skipped_steps > skipped_before,
            losses=torch.stack(losses),
        )

    def evaluate(self, micro_batch: MicroBatch, **options: bool) -> torch.Tensor:
        """The summed losses of a micro-batch, fp32 [terms] on the device, without dropout; under ZeRO-3 all call.

        `options` are the model's own (models.task.Bottleneck has one).
        """
        self.deepspeed.eval()
        with torch.no_grad():
            sums = self.deepspeed(**self._tensors(micro_batch), **options)
        self.deepspeed.train()
        return torch.stack([sums[term] for term in self.weights])

    def embed(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """The model's embeddings, fp32 [B, H], of ids int64 and mask bool [B, T]; under ZeRO-3 all ranks call."""
        self.deepspeed.eval()
        with torch.no_grad():
            ids, mask = (torch.from_numpy(array).to(self.device) for array in (input_ids, attention_mask))
            embeddings = self.model.embed(ids, mask).float().cpu().numpy()
        self.deepspeed.train()
        return embeddings

    def full_weights(self) -> dict[str, torch.Tensor]:
        """Every parameter in fp32 on the CPU, whatever the ZeRO stage; all ranks call, tied ones stand once."""
        weights = {}
        for name, parameter in self.deepspeed.module.named_parameters():
            full = safe_get_full_fp32_param(parameter)
            # None: DeepSpeed keeps no partitioned master copy (stage 0)
            weights[name] = (parameter.data if full is None else full).detach().float().cpu().contiguous()
        return weights

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Element-wise sum over all ranks, on this rank's device; of `values` that lie there, in place."""
        values = values.to(self.device)
        dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank; all ranks call. Slow: for what is rare."""
        values = [None] * self.world.size
        dist.all_gather_object(values, value)
        return values

    def save(self, folder: Path, tag: str) -> None:
        """DeepSpeed's own files, for an exact continuation; all ranks call.

        Raises the first error that a file met with, and only when all ranks have done their part: one that left
        earlier would leave the others waiting.
        """
        self.files.error = None
        # without this key DeepSpeed cannot convert the checkpoint for another number of ranks
        self.deepspeed.save_checkpoint(
            str(folder), tag=tag, save_latest=False, client_state={"universal_checkpoint_info": {}}
        )
        if self.files.error is not None:
            raise self.files.error

    def load(self, folder: Path, tag: str, *, universal: bool = False) -> None:
        """Take up what `save` wrote, or what was made `universal` of it; all ranks call.

        Only for verified folders: DeepSpeed unpickles its files.
        """
        self.deepspeed._config.load_universal_checkpoint = universal
        decays = [group["weight_decay"] for group in self.optimizer.param_groups]
        loaded, _ = self.deepspeed.load_checkpoint(str(folder), tag=tag)
        if loaded is None:
            raise InputError(f"{folder / tag}: DeepSpeed finds no checkpoint of its own in there")
        if universal:
            # stage 3 gives every group the settings of the first, and all one counter of steps, which each advances
            for group, decay in zip(self.optimizer.param_groups, decays, strict=True):
                group["weight_decay"] = decay
            for state in self.optimizer.state.values():
                state["step"] = torch.clone(torch.as_tensor(state["step"]))

    def _tensors(self, micro_batch: MicroBatch) -> dict[str, torch.Tensor]:
        return {k: torch.from_numpy(v).to(self.device, non_blocking=True) for k, v in micro_batch.arrays.items()}


def _nothing(*arguments: object) -> None:
    """In the place of what need not be done."""


class CheckpointFiles(TorchCheckpointEngine):
    """Writes DeepSpeed's files; keeps an error to itself until the collective save is over."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None

    def save(self, state_dict: Any, path: str) -> None:
        """One file; after the first error none."""
        if self.error is None:
            try:
                with open(path, "wb") as file:  # given a path, torch does not see that its last bytes were refused
                    torch.save(state_dict, file)
            except (OSError, RuntimeError) as error:
                self.error = error.__context__ if isinstance(error.__context__, OSError) else error


def _parameter_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """Matrices decay; biases and normalisation weights do not, as in BERT."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": optimizer.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _adam(optimizer: Optimizer) -> dict[str, Any]:
    return {"lr": optimizer.lr, "betas": optimizer.betas, "eps": optimizer.eps}
