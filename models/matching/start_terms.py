"""How many terms a document has at the start, for methods whose terms are the positive logits of a masked LM.

The loss of a masked LM does not see a constant in all its logits, but here it decides how many are above 0. A new head,
or one that was trained for a short time, gives every text most of the vocabulary.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from models.config import Section
from models.layers.lm_head import LmHead

DOCUMENTS = 32  # to count the terms of


class StartTerms(Section):
    """The key of the number."""

    start_terms: int | None = Field(None, ge=1)  # at most a tenth of the vocabulary; None: the bias stays as it is

    @property
    def start_documents(self) -> int:
        """How many documents the model's `fit_start` looks at."""
        return DOCUMENTS if self.start_terms else 0


@torch.no_grad()
def fit_bias(head: LmHead, logits: Tensor, keys: StartTerms) -> str:
    """Add to a head's bias what gives documents their number of logits above 0, on average; return a line on it.

    Args:
        head: its bias has V numbers.
        logits: the documents' with the bias as it is, [D, V].
        keys: have a number.
    """
    assert keys.start_terms is not None
    number = max(1, min(keys.start_terms, len(head.bias) // 10))
    added = -logits.flatten().topk(number * len(logits)).values[-1]
    head.bias.add_(added)
    return f"documents start with {number} terms each: {added:+.2f} on the bias of the masked LM's head"
