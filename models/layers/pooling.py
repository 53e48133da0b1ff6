"""Choose among hidden states: one vector per sequence, or the states at given positions."""

from typing import Literal

import torch
from torch import Tensor

Pooling = Literal["cls", "mean", "last", "first_m"]


def pool(hidden: Tensor, attention_mask: Tensor, mode: Pooling | Literal["max"], m: int | None = None) -> Tensor:
    """Pool hidden states to one vector per sequence.

    Args:
        hidden: [B, T, H].
        attention_mask: bool [B, T].
        mode: `cls` takes position 0; `last` takes the last position with a token, the only one in a causal encoder
            that has seen the whole text; `mean` averages the positions with a token, in fp32; `first_m` averages those
            among the first m positions (Poly-encoders, section 4.2); `max` takes the largest value at any of them.
        m: of `first_m`.

    Returns:
        [B, H], at least fp32.
    """
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    if mode == "cls":
        return hidden[:, 0].to(dtype)
    if mode == "last":
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        last_token = (positions * attention_mask).amax(dim=1)  # [B]; padding is on the right, and counts 0
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), last_token].to(dtype)
    if mode == "max":
        return hidden.to(dtype).masked_fill(~attention_mask[:, :, None], -torch.inf).amax(dim=1)
    if mode == "first_m":
        hidden, attention_mask = hidden[:, :m], attention_mask[:, :m]
    weights = attention_mask.to(dtype)
    weights = weights / weights.sum(dim=1, keepdim=True)  # NaN in a row of padding alone: see `bottleneck`
    return torch.einsum("bth,bt->bh", hidden.to(dtype), weights)


def bottleneck(hidden: Tensor, attention_mask: Tensor, mode: Pooling) -> Tensor:
    """Pool hidden states to the vector that a decoder reads, [B, H] in their dtype; rows may be padding alone."""
    if mode == "cls":
        return hidden[:, 0]  # as it is: the decoder computes in the trunk's precision
    return pool(hidden, unmask_empty_rows(attention_mask), mode).to(hidden.dtype)


def unmask_empty_rows(visible: Tensor) -> Tensor:
    """Make all of a row visible where none of it is, bool [..., S]: a mean of nothing, or attention to it, is NaN."""
    return visible | ~visible.any(dim=-1, keepdim=True)


def select(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the states of hidden [B, T, H] at positions int64 [N] in the flattened [B * T]: [N, H].

    Only these are projected to the vocabulary: a masked LM needs the logits of 15 % of its tokens.
    """
    return hidden.flatten(0, 1).index_select(0, positions)
