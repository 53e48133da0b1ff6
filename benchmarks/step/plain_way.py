"""The plain way to compute a method's losses, as a first implementation and a framework's model classes do.

It computes the logits of every position of the whole batch at once, uses a T x T attention mask in SEED's decoder, and
pads every row to the longest possible input. Parameters and losses are the same, which the benchmarks' tests check.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.models.interface import IGNORED, MicroBatch
from deepsiam.models.layers.local_attention import masked_local_attention
from deepsiam.models.pretraining.config import PretrainingConfig


@contextmanager
def plain_layers() -> Iterator[None]:
    """Replace the losses and the decoder's attention of all methods by plain ones."""
    plain = {"linear_cross_entropy": full_logits, "local_attention": masked_local_attention}
    modules = model_modules()
    with ExitStack() as replaced:
        for name, function in plain.items():
            users = [module for module in modules if name in vars(module)]
            assert users, f"no method uses {name}: the plain way must replace what it became"
            for module in users:
                replaced.enter_context(mock.patch.object(module, name, function))
        yield


def model_modules() -> list[ModuleType]:
    """Return the imported modules of the methods and their layers."""
    return [module for name, module in sys.modules.items() if name.startswith("deepsiam.models.")]


def full_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *_: Any, **__: Any) -> Tensor:
    """Replace `linear_cross_entropy`: compute the logits of all rows at once, in fp32."""
    logits = F.linear(hidden, weight, bias).float()
    return F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")


def plain_batch(method: PretrainingConfig, batch: MicroBatch) -> MicroBatch:
    """Apply `plain_arrays` to a micro-batch."""
    arrays = {name: torch.from_numpy(array) for name, array in batch.arrays.items()}
    return batch._replace(arrays={name: array.numpy() for name, array in plain_arrays(method, arrays).items()})


def plain_arrays(method: PretrainingConfig, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """Pad all rows of a micro-batch's arrays to the longest possible input, and give every position a label."""
    plain, longest = {}, _longest_inputs(method, arrays)
    for name, array in arrays.items():
        if name in longest:
            plain[name] = F.pad(array, (0, longest[name] - array.shape[-1]))
        elif name.endswith("_mask") or name == "token_types":
            side = name.removesuffix("mask")
            ids = f"{side}ids" if side in ("query_", "passage_", "document_") else "input_ids"
            plain[name] = F.pad(array, (0, longest[ids] - array.shape[-1]))
        elif name == "visible_bits":  # [B, T, T / 8]
            width = longest["input_ids"]
            plain[name] = F.pad(array, (0, -(-width // 8) - array.shape[2], 0, width - array.shape[1]))
            plain[name][:, array.shape[1] :, 0] = 1  # as in the batcher: padding sees the first slot
        elif name.endswith("_positions"):
            term = name.removesuffix("_positions")
            read = f"{term}_ids" if f"{term}_ids" in arrays else "input_ids"
            labels = _labels(array, arrays[f"{term}_targets"], arrays[read].shape, longest[read])
            plain[f"{term}_targets"] = labels
            plain[name] = torch.arange(len(labels))
    return {**arrays, **plain}


def _longest_inputs(method: PretrainingConfig, arrays: dict[str, Tensor]) -> dict[str, int]:
    """Return the width to pad each array of ids to."""
    most = {f"{side}_ids": getattr(method, f"max_{side}_tokens", 0) for side in ("query", "document")}
    ids = {name: array.shape[-1] for name, array in arrays.items() if name.endswith("_ids")}
    return {name: max(width, most.get(name) or getattr(method, "max_tokens", 0)) for name, width in ids.items()}


def _labels(positions: Tensor, targets: Tensor, shape: torch.Size, width: int) -> Tensor:
    """Return a label for every position of rows of `width`, IGNORED where there is no target: int64 [rows * width]."""
    kept = targets != IGNORED
    flat = torch.full((shape.numel(),), IGNORED)
    flat[positions[kept]] = targets[kept]
    return F.pad(flat.view(-1, shape[-1]), (0, width - shape[-1]), value=IGNORED).flatten()
