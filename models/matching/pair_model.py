"""What the models have in common that compare a query with its own candidates, pair by pair: batches and losses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch.nn.functional as F
from pydantic import PositiveInt, model_validator
from torch import Tensor

from models.batching.candidates import Candidates, Example, columns, labels_of
from models.batching.framing import PairFraming, count_text
from models.config import MatchingConfig
from models.interface import MicroBatch, Vocabulary
from models.layers import ranking_losses
from models.trunk import TrunkModel

Loss = Literal["softmax", "binary", "classes", "kl", "margin_mse"]


class PairModelConfig(MatchingConfig):
    """The keys of a model that scores or classifies pairs; its negatives are each query's own."""

    loss: Loss = "softmax"
    classes: PositiveInt | None = None  # of loss classes: labels are 0, 1, ... below it

    @model_validator(mode="after")
    def _has_what_its_loss_needs(self) -> PairModelConfig:
        if (self.loss == "classes") != (self.classes is not None) or self.classes == 1:
            raise ValueError("method.classes is the number, 2 or more, of method.loss=classes: set both or neither")
        if self.loss == "softmax" and not self.own_negatives:
            raise ValueError(
                "method.loss=softmax needs a query's own negatives: set method.hard_negatives, which are given with "
                "the query, or method.negatives_per_query, which are drawn at random"
            )
        return self

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        """How a query and a document become the arguments of `score_pairs`."""
        return PairFraming(self.query_framing(vocabulary), self.document_framing(vocabulary))

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> PairBatcher:
        """Build the batcher of pairs."""
        return PairBatcher(self, vocabulary, candidates)


class PairBatcher:
    """Examples -> P pairs of a query and one of its candidates.

    `pair_ids` int64, `pair_mask` bool and `pair_types` int64, as the framing makes them: the first candidate of each
    query, then the other candidates of query 0, of query 1, ... `candidates` int64 [Q, n]: each query's pairs, -1 where
    it has fewer; `labels` fp32 [Q, n].
    """

    def __init__(self, keys: PairModelConfig, vocabulary: Vocabulary, candidates: Candidates) -> None:
        """Draw negatives from `candidates`."""
        self.keys, self.vocabulary, self.candidates = keys, vocabulary, candidates
        self.framing = keys.pair_framing(vocabulary)

    def examples(self, documents: Sequence[Example]) -> list[Example]:
        """Return the examples unchanged."""
        return list(documents)

    def origins(self, documents: Sequence[Example]) -> list[list[int]]:
        """Return the number of each example."""
        return [[i] for i in range(len(documents))]

    def micro_batch(self, examples: Sequence[Example], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each query's negatives with its own rng; frame and pad the pairs.

        Raises:
            ValueError: a query has fewer documents to draw from than the recipe asks for.
        """
        chosen = [self.keys.choose(self.candidates, example, rng) for example, rng in zip(examples, rngs, strict=True)]
        first = [(example.query, own[0]) for example, own in zip(examples, chosen, strict=True)]
        others = [(example.query, i) for example, own in zip(examples, chosen, strict=True) for i in own[1:]]
        pairs = first + others
        texts = [self.candidates.corpus.tokens(i) for _, i in pairs]
        arrays = {f"pair_{k}": v for k, v in self.framing.arrays([query for query, _ in pairs], texts).items()}
        arrays["candidates"], arrays["labels"] = columns(chosen), labels_of(examples, chosen)
        targets = len(pairs) if self.keys.loss == "binary" else len(examples)
        return MicroBatch(arrays, {self.keys.loss: targets}, count_text([arrays["pair_ids"]], self.vocabulary))


class PairModel(TrunkModel):
    """A model with `score_pairs` (`models.interface.PairScorer`), trained by the scores of each query's candidates."""

    keys: PairModelConfig

    @abstractmethod
    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Score pairs: fp32 [P], or logits of classes [P, C]; the arguments are what `pair_framing` makes."""

    def forward(
        self, pair_ids: Tensor, pair_mask: Tensor, pair_types: Tensor, candidates: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `PairBatcher` as tensors -> {loss: the sum over its targets}."""
        scores, loss = self.score_pairs(pair_ids, pair_mask, pair_types), self.keys.loss
        if loss == "classes":
            return {loss: F.cross_entropy(scores, labels[:, 0].long(), reduction="sum")}
        own = scores[candidates.clamp(min=0)]  # [Q, n]
        return {loss: ranking_losses.of_own(loss, own, candidates >= 0, labels)}
