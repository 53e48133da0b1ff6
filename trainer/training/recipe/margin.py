"""How much less than the best relevant document a mined negative must score: `0.1`, or a share of its score: `5%`."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator


def read_margin(given: object) -> float | str:
    """Return a margin as a number, or a share as text that ends with %; raise ValueError for anything else."""
    text = str(given).strip()
    try:
        size = float(text.removesuffix("%"))
    except ValueError:
        size = -1.0
    if not 0 <= size < (100 if text.endswith("%") else math.inf):
        raise ValueError(f"{text!r} is not a number, 0 or above, nor a share of the relevant document's score, as 5%")
    return text if text.endswith("%") else size


def _of_refresh(given: object) -> float | str:
    try:
        return read_margin(given)
    except ValueError as error:
        raise ValueError(f"refresh.margin: {error}") from None


Margin = Annotated[float | str, BeforeValidator(_of_refresh)]


def most(best: float, margin: float | str) -> float:
    """Return what a negative may score at most, given the score of the best relevant document.

    A share is one of the score's size, so that the limit lies below a negative score, too: 5 % below -2 is -2.1.
    """
    if isinstance(margin, str):
        share = float(margin.removesuffix("%")) / 100
        return best * (1 - share if best > 0 else 1 + share)
    return best - margin
