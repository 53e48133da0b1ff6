"""The targets of a causal model: the next token at every slot, as flat lists with few different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deepsiam.models.batching.packing import pad_flat
from deepsiam.models.interface import IGNORED


class NextTokens(NamedTuple):
    """Slots of the padded rows that have a next token, and that token."""

    positions: np.ndarray  # int64 [N], into the flattened rows
    targets: np.ndarray  # int64 [N], -100 where the list is filled up
    number: int  # number of targets


def next_tokens(rows: Sequence[np.ndarray], width: int) -> NextTokens:
    """List the targets: slot t of a row predicts token t + 1; the last token of a row predicts nothing.

    Padding is never a target. N is rounded up to a multiple of 64 (filled with 0 and -100), so the output projection,
    as large as the vocabulary, computes little on padding and has few different shapes.

    Args:
        rows: ids, at least one per row.
        width: width of the rows after padding on the right.
    """
    count = sum(len(ids) - 1 for ids in rows)
    size = max(1, -(-count // 64)) * 64
    positions = [row * width + np.arange(len(ids) - 1) for row, ids in enumerate(rows)]
    return NextTokens(pad_flat(positions, size, 0), pad_flat([ids[1:] for ids in rows], size, IGNORED), count)
