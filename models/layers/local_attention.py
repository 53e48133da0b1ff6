"""Causal self-attention over a short window and position 0, in time and memory proportional to the window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def local_attention(query: Tensor, key: Tensor, value: Tensor, window: int, dropout: float = 0.0) -> Tensor:
    """Attend from each position t, in one softmax, to exactly {0} and [t - window + 1 .. t].

    Column 0 of the scores is position 0, column 1 + s is position t - s: the keys are shifted, and no T x T matrix is
    made. Where t - s is 0 or less, the column is masked, so position 0 counts only once.

    Args:
        query, key, value: [B, T, heads, d].
        window: number of positions, t itself included; at least 1.
        dropout: probability of dropping an attention weight.

    Returns:
        [B, T, heads, d].
    """
    length = query.shape[1]
    query = query * query.shape[-1] ** -0.5
    shifts = range(min(window, length - 1))
    scores = [(query * key[:, :1]).sum(-1)]  # each [B, T, heads]
    for s in shifts:
        near = (query[:, s + 1 :] * key[:, 1 : length - s]).sum(-1)
        scores.append(F.pad(near, (0, 0, s + 1, 0), value=-torch.inf))
    weights = torch.stack(scores, dim=-1).softmax(-1)  # [B, T, heads, 1 + window]
    weights = F.dropout(weights, dropout, training=dropout > 0)
    out = weights[..., :1] * value[:, :1]
    for s in shifts:
        near = weights[:, s + 1 :, :, s + 1, None] * value[:, 1 : length - s]
        out = out + F.pad(near, (0, 0, 0, 0, s + 1, 0))
    return out
