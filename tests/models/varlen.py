"""A kernel for texts in one row that runs on a CPU, in the place of a GPU's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.models.attention import TextsInRow


def attend_text_by_text(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    texts: TextsInRow,
    *,
    dropout: float,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """Attend as `models.attention.flash` does, by SDPA, one text after the other."""
    lengths = texts.ends.diff().tolist()
    assert max(lengths) == texts.max_length
    outputs = []
    for q, k, v in zip(*(x.transpose(0, 1).split(lengths, dim=1) for x in (query, key, value)), strict=True):
        places = torch.arange(q.shape[1])
        distance = places[:, None] - places
        seen = distance.abs() < (len(places) if window is None else window)
        if texts.causal:
            seen &= distance >= 0
        outputs.append(F.scaled_dot_product_attention(q, k, v, seen, dropout, scale=scale, enable_gqa=True))
    return torch.cat(outputs, dim=1).transpose(0, 1)
