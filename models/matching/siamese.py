"""The Siamese network: one encoder for queries and documents, compared by their embeddings (SEED, eq. 1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from models.batching.packing import frame, pad, text_tokens
from models.config import MatchingConfig
from models.encode import encode, insert_special_tokens
from models.interface import Corpus, MicroBatch, Vocabulary
from models.layers.losses import in_batch_softmax, triplet_hinge
from models.layers.pooling import Pooling, pool
from models.trunk import TrunkModel, require_bidirectional

Similarity = Literal["dot", "cosine"]
Loss = Literal["softmax", "hinge"]


class SiameseConfig(MatchingConfig):
    """Fine-tuning of one shared encoder on labelled pairs."""

    name: Literal["siamese"]
    loss: Loss = "softmax"
    similarity: Similarity = "dot"
    temperature: PositiveFloat = 1.0
    pooling: Pooling = "cls"
    special_tokens: PositiveInt = 1  # [CLS] and those that pre-training added after it (Cross-Thought)

    @model_validator(mode="after")
    def _hinge_has_negatives(self) -> SiameseConfig:
        if self.loss == "hinge" and not self.negatives_per_query:
            raise ValueError("method.loss=hinge needs sampled negatives: set method.negatives_per_query")
        return self

    @model_validator(mode="after")
    def _special_tokens_are_pooled(self) -> SiameseConfig:
        if self.special_tokens > 1 and self.pooling != "cls":
            raise ValueError(
                f"method.special_tokens={self.special_tokens} are pooled by their own states: set method.pooling=cls"
            )
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {self.loss: 1.0}

    @property
    def added_tokens(self) -> int:
        """All special tokens except [CLS]."""
        return self.special_tokens - 1

    def batcher(self, vocabulary: Vocabulary, corpus: Corpus, candidates: np.ndarray) -> SiameseBatcher:
        """Build the batcher of pairs; it draws negatives from the documents numbered in `candidates`, int64 [C]."""
        return SiameseBatcher(
            vocabulary,
            corpus,
            candidates,
            max_query_tokens=self.max_query_tokens,
            max_document_tokens=self.max_document_tokens,
            negatives_per_query=self.negatives_per_query,
            loss=self.loss,
        )

    def model(self, trunk: PreTrainedModel) -> TrunkModel:
        """Build the model around a trunk; raise ValueError where it pools [CLS] and the trunk is causal."""
        return Siamese(trunk, self.pooling, self.similarity, self.temperature, self.loss, self.special_tokens)


@dataclass(frozen=True)
class Pair:
    """A query (token ids without special tokens), the number of a relevant document, and those of all known ones."""

    query: np.ndarray
    positive: int
    relevant: frozenset[int]


class SiameseBatcher:
    """Pairs -> queries [Q, Lq] and documents [D, Ld], D = Q * (1 + negatives_per_query).

    Document i is query i's positive; the negatives of query i follow the positives, at Q + i * n + j.
    Arrays: `query_ids`, `document_ids` int64; `query_mask`, `document_mask` bool; `positives` int64 [Q] and
    `negatives` int64 [Q, n], columns of the scores; `allowed` bool [Q, D], false where the document is relevant
    to the query but not its positive, or is a second copy of the positive.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        corpus: Corpus,
        candidates: np.ndarray,
        *,
        max_query_tokens: int,
        max_document_tokens: int,
        negatives_per_query: int,
        loss: Loss,
    ) -> None:
        """Draw negatives from the documents numbered in `candidates`, int64 [C].

        Lengths include [CLS] and [SEP]; longer texts lose their end.
        """
        self.vocabulary = vocabulary
        self.corpus = corpus
        self.candidates = candidates
        self.max_query_tokens = max_query_tokens
        self.max_document_tokens = max_document_tokens
        self.negatives_per_query = negatives_per_query
        self.loss = loss

    def examples(self, documents: Sequence[Pair]) -> list[Pair]:
        """Return the pairs unchanged."""
        return list(documents)

    def origins(self, documents: Sequence[Pair]) -> list[list[int]]:
        """Return the number of each pair: an example is one pair."""
        return [[i] for i in range(len(documents))]

    def micro_batch(self, examples: Sequence[Pair], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each query's negatives with its own rng, frame and pad the texts, mark the allowed documents.

        Raises:
            ValueError: a query has fewer than `negatives_per_query` documents to draw from.
        """
        queries, n = len(examples), self.negatives_per_query
        negatives = [i for pair, rng in zip(examples, rngs, strict=True) for i in self._draw(pair, rng)]
        documents = [pair.positive for pair in examples] + negatives  # D
        query_rows = self._frame([pair.query for pair in examples], self.max_query_tokens)
        document_rows = self._frame([self.corpus.tokens(i) for i in documents], self.max_document_tokens)
        query_ids, query_mask = pad(query_rows, self.max_query_tokens, self.vocabulary.pad)
        document_ids, document_mask = pad(document_rows, self.max_document_tokens, self.vocabulary.pad)
        allowed = np.stack([~np.isin(documents, [*pair.relevant]) for pair in examples])
        positives = np.arange(queries)
        allowed[positives, positives] = True
        arrays = {
            "query_ids": query_ids,
            "query_mask": query_mask,
            "document_ids": document_ids,
            "document_mask": document_mask,
            "positives": positives,
            "negatives": queries + np.arange(queries * n).reshape(queries, n),
            "allowed": allowed,
        }
        tokens = text_tokens([*query_rows, *document_rows], self.vocabulary)
        return MicroBatch(arrays, {self.loss: queries}, tokens)

    def _draw(self, pair: Pair, rng: np.random.Generator) -> list[int]:
        """Draw `negatives_per_query` different candidates that are not relevant to the pair's query."""
        wanted = self.negatives_per_query
        if not wanted:
            return []
        size = min(wanted + len(pair.relevant), len(self.candidates))  # enough, even if all relevant ones are drawn
        sample = rng.choice(self.candidates, size, replace=False)
        drawn = [int(i) for i in sample if i not in pair.relevant][:wanted]
        if len(drawn) < wanted:
            raise ValueError(f"negatives_per_query is {wanted}, but a query has only {len(drawn)} to draw from")
        return drawn

    def _frame(self, texts: Sequence[np.ndarray], max_tokens: int) -> list[np.ndarray]:
        return [frame(text, self.vocabulary, max_tokens) for text in texts]


class Siamese(TrunkModel):
    """One shared encoder (`trunk.`), with no other parameters."""

    def __init__(
        self,
        trunk: PreTrainedModel,
        pooling: Pooling = "cls",
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        loss: Loss = "softmax",
        special_tokens: int = 1,
    ) -> None:
        """Score by similarities divided by `temperature`; the hinge's margin of 1 is in that unit.

        With more than one special token, [CLS] and those that pre-training added, the embedding is their concatenated
        states, at the same positions as in pre-training (Cross-Thought).

        Raises:
            ValueError: `pooling` is cls and the trunk is causal.
        """
        super().__init__()
        if pooling == "cls":
            require_bidirectional(trunk)
        self.trunk = trunk
        self.pooling = pooling
        self.similarity = similarity
        self.temperature = temperature
        self.loss = loss
        self.special_tokens = special_tokens

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return embeddings of ids int64 and mask bool [B, T]: fp32 [B, special_tokens * H], of length 1 for cosine."""
        n = self.special_tokens
        if n > 1:
            hidden = encode(self.trunk, *insert_special_tokens(self.trunk, input_ids, attention_mask, n - 1))
            embeddings = hidden[:, :n].flatten(1).to(torch.promote_types(hidden.dtype, torch.float32))
        else:
            embeddings = pool(encode(self.trunk, input_ids, attention_mask), attention_mask, self.pooling)
        return F.normalize(embeddings, dim=-1) if self.similarity == "cosine" else embeddings

    def forward(
        self,
        query_ids: Tensor,
        query_mask: Tensor,
        document_ids: Tensor,
        document_mask: Tensor,
        positives: Tensor,
        negatives: Tensor,
        allowed: Tensor,
    ) -> dict[str, Tensor]:
        """The arrays of `SiameseBatcher` as tensors -> {"softmax" or "hinge": the sum over queries}."""
        queries = self.embed(query_ids, query_mask)
        documents = self.embed(document_ids, document_mask)
        scores = queries @ documents.T / self.temperature  # [Q, D]
        if self.loss == "softmax":
            return {"softmax": in_batch_softmax(scores, positives, allowed)}
        return {"hinge": triplet_hinge(scores.gather(1, positives[:, None])[:, 0], scores.gather(1, negatives))}
