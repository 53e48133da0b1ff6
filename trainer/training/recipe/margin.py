"""How much less than the best relevant document a mined negative must score: `0.1`, or a share of its score: `5%`."""

import math
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator


def read_margin(value: object, key: str = "") -> float | str:
    """Return a margin as a number, or a share as text that ends with %; raise ValueError, naming `key`, otherwise."""
    text = str(value).strip()
    try:
        size = float(text.removesuffix("%"))
    except ValueError:
        size = -1.0
    if not 0 <= size < (100 if text.endswith("%") else math.inf):
        form = "a number, 0 or above, nor a share of the relevant document's score, as 5%"
        raise ValueError(f"{key}{text!r} is not {form}")
    return text if text.endswith("%") else size


Margin = Annotated[float | str, BeforeValidator(partial(read_margin, key="refresh.margin: "))]


def score_limit(best_score: float, margin: float | str) -> float:
    """Return what a negative may score at most, given the score of the best relevant document.

    A share is one of the score's size, so that the limit lies below a negative score, too: 5 % below -2 is -2.1.
    """
    if isinstance(margin, str):
        share = float(margin.removesuffix("%")) / 100
        return best_score * (1 - share if best_score > 0 else 1 + share)
    return best_score - margin
