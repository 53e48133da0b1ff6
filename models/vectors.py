"""What an encoder makes of texts: one vector for each, or several."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Vectors(NamedTuple):
    """The vectors of B texts."""

    vectors: Tensor  # fp32 [B, m, H]
    mask: Tensor  # bool [B, m], true at a vector, false at padding


def one_vector(embeddings: Tensor) -> Vectors:
    """Return embeddings [B, H] as one vector of each text, in fp32 at least."""
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    return Vectors(embeddings[:, None].to(dtype), embeddings.new_ones(len(embeddings), 1, dtype=torch.bool))
