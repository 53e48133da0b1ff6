"""The targets of a causal model: at every slot the next token, as flat lists of a fixed-shaped micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.blocks import pad_flat
from models.losses import IGNORED


class NextTokens(NamedTuple):
    """Slots of the padded rows that have a next token, and that token."""

    positions: np.ndarray  # int64 [N], into the flattened rows
    targets: np.ndarray  # int64 [N], -100 where there is none
    number: int  # how many have one


def next_tokens(rows: Sequence[np.ndarray], width: int) -> NextTokens:
    """Slot t of a row predicts its token t + 1; the last token of a row predicts nothing, and padding is no target.

    N is rounded up to a multiple of 64 (filled with 0 and -100): the output projection, large as the vocabulary,
    computes next to nothing on padding, and its shapes stay few.

    Args:
        rows: ids, at least one a row.
        width: that of the rows when padded on the right.
    """
    count = sum(len(ids) - 1 for ids in rows)
    size = max(1, -(-count // 64)) * 64
    positions = [row * width + np.arange(len(ids) - 1) for row, ids in enumerate(rows)]
    return NextTokens(pad_flat(positions, size, 0), pad_flat([ids[1:] for ids in rows], size, IGNORED), count)
