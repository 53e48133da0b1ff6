"""Copies from the host to the device."""

from __future__ import annotations

import torch


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy values of the host to a device, without waiting for the device: it reads pinned memory by itself."""
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)
