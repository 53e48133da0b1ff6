"""Checks that apply to every method's model, whatever its losses are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepsiam.models.interface import IGNORED, MicroBatch
from deepsiam.models.trunk import TrunkModel
from tests.models.tiny import VOCABULARY, tensors


def half_precision(model: TrunkModel, arrays: Mapping[str, Tensor], dtype: torch.dtype, rel: float = 0.02) -> None:
    """Assert that an fp64 model in half precision has fp32 losses near the exact ones, and finite gradients."""
    exact = model(**arrays)
    losses = model.to(dtype)(**arrays)
    for name, loss in losses.items():
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(exact[name].item(), rel=rel), name
    sum(losses.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.requires_grad)


def training_lowers_every_loss(
    model: TrunkModel, arrays: Mapping[str, Tensor], weights: Mapping[str, float] = MappingProxyType({})
) -> None:
    """Assert that training steps on one micro-batch lower each loss, with weight 1 by default."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    history = []
    for _ in range(15):
        losses = model(**arrays)
        history.append({name: loss.item() for name, loss in losses.items()})
        optimizer.zero_grad()
        sum(weights.get(name, 1.0) * loss for name, loss in losses.items()).backward()
        optimizer.step()
    assert all(last < 0.95 * history[0][name] for name, last in history[-1].items()), history


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
    """Return a micro-batch whose texts are padded to `width` columns, with `rows` rows that are only padding.

    Cross-Thought's examples, which are sequences of a fixed width, get three more sequences and five more columns.
    """
    padded = dict(arrays)
    for name, array in arrays.items():
        if name.endswith("_positions"):
            ids = arrays.get(name.replace("positions", "ids"), arrays.get("input_ids"))
            old, new = (ids.shape[1], width) if ids.ndim == 2 else (ids.shape[2], ids.shape[2] + 5)
            row = array // old
            if ids.ndim == 3:
                row = row // ids.shape[1] * (ids.shape[1] + 3) + row % ids.shape[1]
            padded[name] = row * new + array % old
        elif name == "visible_bits":  # a slot that is padding sees slot 0
            padded[name] = torch.zeros(len(array) + rows, width, width // 8, dtype=array.dtype)
            padded[name][:, :, 0] = 1
            padded[name][: len(array), : array.shape[1], : array.shape[2]] = array
        elif name.endswith(("_ids", "_mask", "_types")):
            more = (0, width - array.shape[1]) if array.ndim == 2 else (0, 5, 0, 3)
            padded[name] = F.pad(array, (*more, 0, rows), value=VOCABULARY.pad)
        elif name == "next_targets" and "token_types" in arrays:  # Poly's, one for each row
            padded[name] = F.pad(array, (0, rows), value=IGNORED)
        elif name == "offsets":
            padded[name] = F.pad(array, (0, rows))
    return padded


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
