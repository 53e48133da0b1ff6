"""Checks that apply to every method's model, whatever its losses are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.interface import MicroBatch
from models.trunk import TrunkModel
from tests.models.tiny import VOCABULARY, tensors

HALF_PRECISIONS = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def half_precision(model: TrunkModel, arrays: Mapping[str, Tensor], dtype: torch.dtype, rel: float = 0.02) -> None:
    """Assert that an fp64 model in half precision has fp32 losses near the exact ones, and finite gradients."""
    exact = model(**arrays)
    losses = model.to(dtype)(**arrays)
    for name, loss in losses.items():
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(exact[name].item(), rel=rel), name
    sum(losses.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def training_lowers_every_loss(model: TrunkModel, arrays: Mapping[str, Tensor], steps: int = 40) -> None:
    """Assert that training steps on one micro-batch lower each loss by at least a fifth."""
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


def losses_add_up(
    model: TrunkModel, micro_batch: Callable[[Sequence[Any], int], MicroBatch], examples: Sequence[Any]
) -> None:
    """Assert that the losses of a micro-batch are finite and equal the sums over its single examples.

    `micro_batch(examples, start)` makes one with the generators start, start + 1, ...
    """
    with torch.no_grad():
        together = model(**tensors(micro_batch(examples, 0)))
        single = [model(**tensors(micro_batch([example], i))) for i, example in enumerate(examples)]
    for name, loss in together.items():
        assert torch.isfinite(loss)
        torch.testing.assert_close(loss, sum(losses[name] for losses in single), rtol=1e-10, atol=1e-10)


def pad_more(arrays: Mapping[str, Tensor], width: int, rows: int = 0) -> dict[str, Tensor]:
    """Return the same micro-batch padded to `width` columns and by `rows` rows that are only padding."""
    old = arrays["input_ids"].shape[1]
    assert old <= width
    padded = dict(arrays)
    for name, array in arrays.items():
        if name.endswith(("_ids", "_mask")):
            padded[name] = F.pad(array, (0, width - old, 0, rows), value=VOCABULARY.pad)
        elif name.endswith("_positions"):
            padded[name] = array // old * width + array % old
    return padded


def padding_changes_nothing(model: TrunkModel, arrays: Mapping[str, Tensor], padded: Mapping[str, Tensor]) -> None:
    """Assert that more padding does not change the losses of a micro-batch, and that all gradients are finite."""
    before, after = model(**arrays), model(**padded)
    for name, loss in before.items():
        torch.testing.assert_close(after[name], loss, rtol=1e-12, atol=0)
    sum(after.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def gradient_at_states(model: TrunkModel, arrays: Mapping[str, Tensor], term: str) -> Tensor:
    """Return the gradient of one loss term at the trunk's last hidden states, [B, T, H]."""
    states = []

    def retain_gradient(module: nn.Module, args: Any, output: Any) -> None:
        output.last_hidden_state.retain_grad()
        states.append(output.last_hidden_state)

    handle = model.trunk.register_forward_hook(retain_gradient)
    model(**arrays)[term].backward()
    handle.remove()
    (hidden,) = states
    return hidden.grad


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    """Return a copy of every parameter's gradient, by name."""
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
