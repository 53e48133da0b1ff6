"""Bring a micro-batch's arrays to a device as tensors, without making the host wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

LENGTHS = "_lengths"  # the attribute of a mask on a device that keeps its lengths on the host


def on_device(arrays: Mapping[str, np.ndarray], device: torch.device | str) -> dict[str, Tensor]:
    """Return the arrays as tensors on a device; each mask (`…mask`) also keeps its lengths on the host.

    A model that asked a GPU for lengths would wait until it has done all its work.
    """
    device = torch.device(device)
    moved = {name: sent(torch.from_numpy(array), device) for name, array in arrays.items()}
    if device.type == "cpu":
        return moved
    for name, tensor in moved.items():
        if name.endswith("mask"):
            setattr(tensor, LENGTHS, arrays[name].sum(axis=-1))
    return moved


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on a device; the copy to an accelerator is queued, from pinned memory."""
    return (tensor if device.type in ("cpu", "meta") else tensor.pin_memory()).to(device, non_blocking=True)


def lengths_of(mask: Tensor) -> np.ndarray:
    """Return the number of tokens in each row of a mask bool [..., T], int64 [...].

    The host waits for a GPU if the mask is neither from `on_device` nor from `keep_lengths`.
    """
    lengths: np.ndarray | None = getattr(mask, LENGTHS, None)
    return mask.sum(dim=-1).cpu().numpy() if lengths is None else lengths


def keep_lengths(new: Tensor, change: Callable[..., np.ndarray], *masks: Tensor) -> Tensor:
    """Return the mask `new`; its lengths are `change` of those of the masks it was made of, if the host knows them."""
    lengths = [getattr(mask, LENGTHS, None) for mask in masks]
    if all(each is not None for each in lengths):
        setattr(new, LENGTHS, change(*lengths))
    return new
