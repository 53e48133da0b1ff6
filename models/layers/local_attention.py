"""Causal self-attention over a short window and position 0, in time and memory proportional to the window."""

import torch
import torch.nn.functional as F
from torch import Tensor

# the longest input for which a GPU gets one masked kernel, not many small ones; no measurement is recorded
MASKED = 512


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
    if query.device.type not in ("cpu", "meta") and length <= MASKED:
        return masked_local_attention(query, key, value, window, dropout)
    query = query * query.shape[-1] ** -0.5
    shifts = range(min(window, length - 1))  # beyond, a shift has no key left but position 0
    scores = [(query * key[:, :1]).sum(-1)]  # each [B, T, heads]
    for s in shifts:
        products = (query[:, s + 1 :] * key[:, 1 : length - s]).sum(-1)  # keys from 1 on: position 0 has its column
        scores.append(F.pad(products, (0, 0, s + 1, 0), value=-torch.inf))
    weights = torch.stack(scores, dim=-1).softmax(-1)  # [B, T, heads, 1 + window]
    weights = F.dropout(weights, dropout, training=dropout > 0)
    out = weights[..., :1] * value[:, :1]
    for s in shifts:
        terms = weights[:, s + 1 :, :, s + 1, None] * value[:, 1 : length - s]
        out = out + F.pad(terms, (0, 0, 0, 0, s + 1, 0))
    return out


def masked_local_attention(query: Tensor, key: Tensor, value: Tensor, window: int, dropout: float = 0.0) -> Tensor:
    """Attend as `local_attention` does, [B, T, heads, d], over all pairs of positions, by one kernel with a mask."""
    places = torch.arange(query.shape[1], device=query.device)
    distance = places[:, None] - places  # [T, T], queries in rows, keys in columns
    visible = (distance >= 0) & ((distance < window) | (places == 0))
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, visible, dropout).transpose(1, 2)
