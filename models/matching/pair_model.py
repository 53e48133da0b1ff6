"""The base of models that compare a query with its own candidates, pair by pair: batches and losses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import PositiveInt, model_validator
from torch import Tensor

from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.batching.framing import PairFraming
from deepsiam.models.config import OrRegistered
from deepsiam.models.interface import Vocabulary
from deepsiam.models.layers.ranking_losses import LOSSES, candidates_losses
from deepsiam.models.matching.batcher import CandidateBatcher
from deepsiam.models.matching.config import NEED_OF_NEGATIVES, Losses, MatchingConfig
from deepsiam.models.trunk import TrunkModel

Loss = Annotated[Literal["softmax", "binary", "classes", "kl", "margin_mse"], OrRegistered(LOSSES)]


class PairModelConfig(MatchingConfig):
    """The keys of a model that scores or classifies pairs; its negatives are each query's own."""

    loss: Losses[Loss] = "softmax"
    classes: PositiveInt | None = None  # number of classes of the loss `classes`: labels are 0 ... classes - 1

    @model_validator(mode="after")
    def _has_what_its_loss_needs(self) -> PairModelConfig:
        if "classes" in self.losses and self.loss != "classes":
            raise ValueError("method.loss: classes cannot be one of several losses: set method.loss=classes")
        if (self.loss == "classes") != (self.classes is not None) or self.classes == 1:
            raise ValueError("method.classes is the number, 2 or more, of method.loss=classes: set both or neither")
        if "softmax" in self.losses and not self.has_own_negatives:
            raise ValueError(f"method.loss=softmax {NEED_OF_NEGATIVES}")
        return self

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        """How a query and a document become the arguments of `score_pairs`."""
        return PairFraming(self.query_framing(vocabulary), self.document_framing(vocabulary))

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> PairBatcher:
        return PairBatcher(self, vocabulary, candidates)


class PairBatcher(CandidateBatcher[PairModelConfig]):
    """Examples -> P pairs of a query and one of its candidates.

    `pair_ids` int64, `pair_mask` bool and `pair_types` int64, as the framing makes them, in the order of
    `CandidateBatcher`.
    """

    def arrays(
        self, examples: Sequence[Example], documents: Sequence[int], queries: Sequence[int]
    ) -> dict[str, np.ndarray]:
        texts = [self.candidates.corpus.tokens(i) for i in documents]
        framed = self.keys.pair_framing(self.vocabulary).arrays([examples[i].query for i in queries], texts)
        return {f"pair_{name}": array for name, array in framed.items()}


class PairModel(TrunkModel):
    """A model with `score_pairs`, trained on the scores of each query's candidates; it can only re-rank."""

    kind = "pairs"
    keys: PairModelConfig

    @abstractmethod
    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Score pairs: fp32 [P], or logits of classes [P, C]; `pair_framing` makes the arguments."""

    def forward(
        self, pair_ids: Tensor, pair_mask: Tensor, pair_types: Tensor, candidates: Tensor, **arrays: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `PairBatcher` as tensors -> {loss: the sum over its targets}."""
        scores = self.score_pairs(pair_ids, pair_mask, pair_types)
        if self.keys.loss == "classes":
            # an example of this loss is one pair, so there is one column of labels
            return {"classes": F.cross_entropy(scores, arrays["labels"][:, 0].long(), reduction="sum")}
        candidate_scores = scores[candidates.clamp(min=0)]  # [Q, n]
        return candidates_losses(self.keys.losses, candidate_scores, candidates >= 0, arrays)
