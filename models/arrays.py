"""Bring a micro-batch's arrays to a device as tensors, without making the host wait for it."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

LENGTHS = "_lengths"  # the attribute of a mask on a device that keeps its lengths on the host
ALIGNED = 16  # bytes: a view of another type must start at a multiple of its item's size


def on_device(arrays: Mapping[str, np.ndarray], device: torch.device | str) -> dict[str, Tensor]:
    """Return the arrays as tensors on a device; each mask (`…mask`) also keeps its lengths on the host.

    A GPU gets all in one copy from pinned memory, which is only queued. A model that asked a GPU for lengths would wait
    until it has done all its work.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    # as bytes, so that arrays of several types go in one copy
    parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()]
    content = torch.from_numpy(np.concatenate([np.pad(part, (0, -len(part) % ALIGNED)) for part in parts]))
    buffer = to_device(content, device)
    tensors, start = {}, 0
    for (name, array), part in zip(arrays.items(), parts, strict=True):
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype  # torch has no public table of numpy's types
        tensors[name] = buffer[start : start + len(part)].view(dtype).view(array.shape)
        start += len(part) + -len(part) % ALIGNED
        if name.endswith("mask"):
            setattr(tensors[name], LENGTHS, array.sum(axis=-1))
    return tensors


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; from pinned memory to an accelerator without waiting for it."""
    if tensor.device.type == "cpu" and device.type not in ("cpu", "meta"):
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def lengths_of(mask: Tensor) -> np.ndarray:
    """Return the number of tokens in each row of a mask bool [..., T], int64 [...].

    The host waits for a GPU if the mask is neither from `on_device` nor from `keep_lengths`.
    """
    lengths: np.ndarray | None = getattr(mask, LENGTHS, None)
    return mask.sum(dim=-1).cpu().numpy() if lengths is None else lengths


def keep_lengths(target: Tensor, change: Callable[..., np.ndarray], *masks: Tensor) -> Tensor:
    """Attach to the mask `target`, [..., T], its row lengths by `change` of those of `masks`, if all are known."""
    lengths = [getattr(mask, LENGTHS, None) for mask in masks]
    if all(each is not None for each in lengths):
        setattr(target, LENGTHS, change(*lengths))
    return target
