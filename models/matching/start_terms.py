"""How many terms a document has at the start, for methods whose terms are the positive logits of a masked LM.

The loss of a masked LM does not see a constant in all its logits, but here it decides how many are above 0. A new head,
or one that was trained for a short time, gives every text most of the vocabulary.
"""

from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor

from deepsiam.models.config import Section
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.trunk import TrunkModel

DOCUMENTS = 32  # to count the terms of


class StartTerms(Section):
    """The recipe key `start_terms`: how many terms a document has before training."""

    start_terms: int | None = Field(None, ge=1)  # at most a tenth of the vocabulary; None: the bias stays as it is

    @property
    def fits_start(self) -> bool:
        """Whether a new model is fitted to documents before the first step."""
        return self.start_terms is not None


class FitsStart(TrunkModel):
    """A model with a masked LM's head, `lm_head.`, whose bias is fitted before the first step."""

    keys: StartTerms
    lm_head: LmHead

    @abstractmethod
    def start_logits(self, ids: Tensor, mask: Tensor, **framed: Tensor) -> Tensor:
        """Return the logits of documents, [D, V], one for each term; `document_framing` makes the arguments."""

    @torch.no_grad()
    def fit_start(self, **documents: Tensor) -> str:
        """Add to the head's bias what gives documents `start_terms` logits above 0, on average; return a line on it."""
        assert self.keys.start_terms is not None
        number = max(1, min(self.keys.start_terms, len(self.lm_head.bias) // 10))
        was_training = self.training
        logits = self.eval().start_logits(**documents)
        self.train(was_training)
        # one threshold for all documents together: one may have more terms than `number`, another fewer
        shift = -logits.flatten().topk(number * len(logits)).values[-1]
        self.lm_head.bias.add_(shift)
        return f"documents start with {number} terms each: {shift:+.2f} on the bias of the masked LM's head"
