"""The Siamese network: one encoder for queries and documents, compared by their embeddings (SEED, eq. 1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from models.blocks import pad
from models.encoder import Pooling, TrunkModel, check_cls_sees_the_text, encode, pool, with_own_tokens
from models.losses import in_batch_softmax, triplet_hinge
from models.task import MicroBatch, Vocabulary

Similarity = Literal["dot", "cosine"]
Loss = Literal["softmax", "hinge"]


class Corpus(Protocol):
    """Documents by number, as token ids without special tokens."""

    def tokens(self, i: int) -> np.ndarray:
        """The ids of document i."""
        ...


@dataclass(frozen=True)
class Pair:
    """A query (token ids without special tokens) with the number of a relevant document and of all known relevant."""

    query: np.ndarray
    positive: int
    relevant: frozenset[int]


class SiameseBatcher:
    """Pairs -> queries [Q, Lq] and documents [D, Ld], D = Q * (1 + negatives_per_query).

    Document i is query i's positive; the negatives of query i follow the positives, at Q + i * n + j.
    Arrays: `query_ids`, `document_ids` int64; `query_mask`, `document_mask` bool; `positives` int64 [Q] and
    `negatives` int64 [Q, n], columns of the scores; `allowed` bool [Q, D], false where the document is relevant
    to the query but is not its positive, or is the positive's double.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        corpus: Corpus,
        candidates: np.ndarray,
        *,
        max_query_tokens: int,
        max_document_tokens: int,
        negatives_per_query: int = 0,
        loss: Loss = "softmax",
    ) -> None:
        """Negatives are drawn among the documents numbered in `candidates`, int64.

        Lengths include [CLS] and [SEP]; longer texts lose their end.
        """
        if min(max_query_tokens, max_document_tokens) < 3:
            raise ValueError("max_query_tokens and max_document_tokens must be at least 3")
        if loss == "hinge" and negatives_per_query < 1:
            raise ValueError("the hinge loss compares each query with its own negatives: set negatives_per_query >= 1")
        self.vocabulary = vocabulary
        self.corpus = corpus
        self.candidates = candidates
        self.max_query_tokens = max_query_tokens
        self.max_document_tokens = max_document_tokens
        self.negatives_per_query = negatives_per_query
        self.loss = loss

    def examples(self, documents: Sequence[Pair]) -> list[Pair]:
        """The pairs as they are."""
        return list(documents)

    def origins(self, documents: Sequence[Pair]) -> list[list[int]]:
        """Each example is one pair."""
        return [[i] for i in range(len(documents))]

    def micro_batch(self, examples: Sequence[Pair], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each query's negatives with its own rng, frame and pad the texts, mark allowed documents."""
        queries, n = len(examples), self.negatives_per_query
        negatives = [i for pair, rng in zip(examples, rngs, strict=True) for i in self._draw(pair, rng)]
        documents = [pair.positive for pair in examples] + negatives  # D
        query_ids, query_mask = self._pad([pair.query for pair in examples], self.max_query_tokens)
        document_ids, document_mask = self._pad([self.corpus.tokens(i) for i in documents], self.max_document_tokens)
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
        return MicroBatch(arrays, {self.loss: queries})

    def _draw(self, pair: Pair, rng: np.random.Generator) -> list[int]:
        """`negatives_per_query` different candidates that are not relevant to the pair's query."""
        wanted = self.negatives_per_query
        if not wanted:
            return []
        size = min(wanted + len(pair.relevant), len(self.candidates))  # enough, even if all relevant ones are drawn
        some = rng.choice(self.candidates, size, replace=False)
        drawn = [int(i) for i in some if i not in pair.relevant][:wanted]
        if len(drawn) < wanted:
            raise ValueError(f"negatives_per_query is {wanted}, but a query has only {len(drawn)} to draw from")
        return drawn

    def _pad(self, texts: Sequence[np.ndarray], max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        cls, sep = [self.vocabulary.cls], [self.vocabulary.sep]
        framed = [np.concatenate([cls, text[: max_tokens - 2], sep], dtype=np.int64) for text in texts]
        return pad(framed, max_tokens, self.vocabulary.pad)


class Siamese(TrunkModel):
    """One shared encoder (`trunk.`); nothing else is learned."""

    def __init__(
        self,
        trunk: PreTrainedModel,
        pooling: Pooling = "cls",
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        loss: Loss = "softmax",
        special_tokens: int = 1,
    ) -> None:
        """Scores are similarities divided by `temperature`; the hinge's margin of 1 is in that unit.

        Where the encoder was pre-trained with `special_tokens` of them, [CLS] and its own, the embedding is their
        states side by side, at the positions that they had there (Cross-Thought).
        """
        super().__init__()
        if special_tokens > 1 and pooling != "cls":
            raise ValueError(f"special_tokens={special_tokens} are what is pooled: pooling must be cls, not {pooling}")
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, not {temperature}")
        if pooling == "cls":
            check_cls_sees_the_text(trunk)
        self.trunk = trunk
        self.pooling = pooling
        self.similarity = similarity
        self.temperature = temperature
        self.loss = loss
        self.special_tokens = special_tokens

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Ids int64 and mask bool [B, T] -> embeddings fp32 [B, special_tokens * H], of length 1 for cosine."""
        n = self.special_tokens
        if n > 1:
            hidden = encode(self.trunk, *with_own_tokens(self.trunk, input_ids, attention_mask, n - 1))
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
        queries = self.encode(query_ids, query_mask)
        documents = self.encode(document_ids, document_mask)
        scores = queries @ documents.T / self.temperature  # [Q, D]
        if self.loss == "softmax":
            return {"softmax": in_batch_softmax(scores, positives, allowed)}
        return {"hinge": triplet_hinge(scores.gather(1, positives[:, None])[:, 0], scores.gather(1, negatives))}
