"""What every method's model is asked, whatever its losses are."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from models.encoder import TrunkModel

HALF_PRECISIONS = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def half_precision(model: TrunkModel, arrays: Mapping[str, Tensor], dtype: torch.dtype, rel: float = 0.02) -> None:
    """Assert that the losses of an fp64 model are fp32 in half precision, and near, and their gradients finite."""
    exact = model(**arrays)
    losses = model.to(dtype)(**arrays)
    for name, loss in losses.items():
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(exact[name].item(), rel=rel), name
    sum(losses.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def training_lowers_every_loss(model: TrunkModel, arrays: Mapping[str, Tensor], steps: int = 40) -> None:
    """Assert that so many steps on one micro-batch take at least a fifth off each loss."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    history = []
    for _ in range(steps):
        losses = model(**arrays)
        history.append({name: loss.item() for name, loss in losses.items()})
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
    assert all(last < 0.8 * history[0][name] for name, last in history[-1].items()), history[-1]
