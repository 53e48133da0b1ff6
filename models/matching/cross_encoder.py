"""The cross-encoder: a query and a document read together, for a score or for classes (Poly-encoders, section 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.batching.candidates import Candidates, Example, columns, labels_of
from models.batching.framing import PairFraming, count_text
from models.config import MatchingConfig
from models.encode import encode
from models.interface import MicroBatch, Vocabulary
from models.layers import ranking_losses
from models.layers.pooling import Pooling, pool
from models.layers.shape import initialise
from models.trunk import TrunkModel, require_bidirectional, token_types

Loss = Literal["softmax", "binary", "classes", "kl", "margin_mse"]


class CrossEncoderConfig(MatchingConfig):
    """The keys of a model that reads both texts together; its negatives are each query's own."""

    name: Literal["cross_encoder"]
    loss: Loss = "softmax"
    pooling: Pooling = "cls"
    hidden_layer: bool = True  # a linear layer and tanh before the last one, as BERT's pooler; false: the paper's
    classes: PositiveInt | None = None  # of loss classes: labels are 0, 1, ... below it

    @model_validator(mode="after")
    def _has_what_its_loss_needs(self) -> CrossEncoderConfig:
        if (self.loss == "classes") != (self.classes is not None) or self.classes == 1:
            raise ValueError("method.classes is the number, 2 or more, of method.loss=classes: set both or neither")
        if self.loss == "softmax" and not self.own_negatives:
            raise ValueError(
                "method.loss=softmax needs a query's own negatives: set method.hard_negatives, which are given with "
                "the query, or method.negatives_per_query, which are drawn at random"
            )
        if self.pooling not in ("cls", "mean"):
            raise ValueError(f"method.pooling={self.pooling} is not for pairs: take cls or mean")
        return self

    @property
    def input_lengths(self) -> dict[str, int]:
        """The pair, whose two texts share one [CLS]."""
        pair = self.max_query_tokens + self.max_document_tokens - 1
        return {"method.max_query_tokens + method.max_document_tokens - 1": pair}

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        """How a query and a document become the arguments of `score_pairs`."""
        return PairFraming(self.query_framing(vocabulary), self.document_framing(vocabulary))

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> CrossEncoderBatcher:
        """Build the batcher of pairs."""
        return CrossEncoderBatcher(self, vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> CrossEncoder:
        """Build the model around a trunk; raise ValueError where it pools [CLS] and the trunk is causal."""
        return CrossEncoder(trunk, self)


class CrossEncoderBatcher:
    """Examples -> pairs [P, T] of a query and one of its candidates.

    `pair_ids` int64, `pair_mask` bool and `pair_types` int64, [P, T], as `PairFraming` makes them: the first candidate
    of each query, then the other candidates of query 0, of query 1, ... `candidates` int64 [Q, n]: each query's pairs,
    -1 where it has fewer; `labels` fp32 [Q, n].
    """

    def __init__(self, keys: CrossEncoderConfig, vocabulary: Vocabulary, candidates: Candidates) -> None:
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


class CrossEncoder(TrunkModel):
    """A trunk and a head `head.` on the pooled state of a pair."""

    def __init__(self, trunk: PreTrainedModel, keys: CrossEncoderConfig) -> None:
        """Draw the head as BERT's layers are.

        Raises:
            ValueError: it pools [CLS] and the trunk is causal.
        """
        super().__init__()
        if keys.pooling == "cls":
            require_bidirectional(trunk)
        self.trunk, self.keys = trunk, keys
        width, dropout = trunk.config.hidden_size, getattr(trunk.config, "hidden_dropout_prob", 0.0)
        first = [nn.Linear(width, width), nn.Tanh()] if keys.hidden_layer else []
        self.head = nn.Sequential(*first, nn.Dropout(dropout), nn.Linear(width, keys.classes or 1))
        initialise(self.head, getattr(trunk.config, "initializer_range", 0.02))
        self.has_types = token_types(trunk) >= 2

    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Score pairs, ids int64, mask bool and types int64 [P, T]: fp32 [P], or logits [P, C] of classes."""
        states = encode(self.trunk, ids, mask, types if self.has_types else None)
        pooled = pool(states, mask, self.keys.pooling).to(states.dtype)
        scores = self.head(pooled)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return scores if self.keys.classes else scores[:, 0]

    def forward(
        self, pair_ids: Tensor, pair_mask: Tensor, pair_types: Tensor, candidates: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `CrossEncoderBatcher` as tensors -> {loss: the sum over its targets}."""
        scores, loss = self.score_pairs(pair_ids, pair_mask, pair_types), self.keys.loss
        if loss == "classes":
            return {loss: F.cross_entropy(scores, labels[:, 0].long(), reduction="sum")}
        own = scores[candidates.clamp(min=0)]  # [Q, n]
        return {loss: ranking_losses.of_own(loss, own, candidates >= 0, labels)}
