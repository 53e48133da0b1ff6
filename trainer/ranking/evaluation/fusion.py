"""Fuse two systems into one: by their scores, standardised for each query and weighted, or by their reciprocal ranks.

A weight w means (1 - w) * the first system's standardised scores + w * the second's. None stands for reciprocal ranks
(Cormack, Clarke and Buettcher, 2009), which need no weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deepsiam.data_prep.common.progress import meter
from deepsiam.trainer.ranking.retrieval.search import Ranked, best, order_of, row_blocks
from deepsiam.trainer.ranking.retrieval.system import ScoresAll

WEIGHTS = tuple(i / 10 for i in range(11))
ONLY_SECOND = 1.0  # the weight that ignores the first system
RANK_OFFSET = 60  # the constant of Cormack et al.


def standardise(scores: np.ndarray) -> np.ndarray:
    """Shift and scale a query's scores, fp32 [N], to mean 0 and standard deviation 1, fp64; equal scores give zeros."""
    if scores.min() == scores.max():  # their mean may be rounded
        return np.zeros(len(scores))
    centred = scores.astype(np.float64)
    centred -= centred.mean()
    standardised: np.ndarray = centred / np.sqrt((centred**2).mean())
    return standardised


def reciprocal_ranks(scores: np.ndarray) -> np.ndarray:
    """Compute 1 / (60 + rank) for each of a query's scores, fp32 [N] to fp64.

    Equal scores share the last of their ranks. So BM25 gives next to nothing to all documents that share no word with
    the query, and a system without a preference does not change the other's order.
    """
    ranks = len(scores) - np.searchsorted(np.sort(scores), scores, side="left")
    return 1.0 / (RANK_OFFSET + ranks)


def fuse(first: np.ndarray, second: np.ndarray, weight: float | None) -> np.ndarray:
    """Fuse two systems' scores of the same documents for a query, fp32 [N], into one, fp32 [N].

    With a weight of 0 or 1, one system's scores are returned as they are: standardised and rounded again, different
    scores could tie.
    """
    if weight is None:
        fused = reciprocal_ranks(first) + reciprocal_ranks(second)
    elif weight in (0, 1):
        fused = second if weight else first
    else:
        fused = (1 - weight) * standardise(first) + weight * standardise(second)
    return fused.astype(np.float32)


@dataclass(frozen=True)
class Fused:
    """Two systems that score all documents, as one more.

    Attributes:
        first: scores the same queries and pool as `second`.
        second: weighted by w where `first` is weighted by 1 - w.
        left_out: documents of the pool that a query does not rank, as if the pool lacked them, by the query's number;
            they score -inf.
        weight: w in [0, 1], or None for reciprocal ranks.
    """

    first: ScoresAll
    second: ScoresAll
    left_out: Mapping[int, np.ndarray]
    weight: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, the number of documents."""
        return self.first.shape

    def scores(self, rows: slice) -> np.ndarray:
        """Return the fused scores of all documents, fp32 [q, N], for some of the queries."""
        return np.stack([self._fuse(*row, self.weight) for row in self._rows(rows)])

    def rank(self, k: int, weights: Sequence[float | None]) -> list[list[Ranked]]:
        """Rank the k best documents for each query, by each of some weights: [weight][query]; both score only once.

        Equal scores rank in the pool's order. All documents are ranked, also those that share no word with the query.
        """
        ranked: list[list[Ranked]] = [[] for _ in weights]
        with meter("fuse", "queries", self.shape[0]) as report:
            for rows in row_blocks(self.shape):
                for row in self._rows(rows):  # one by one: fusing then needs a few rows in fp64, not a few blocks
                    for rankings, weight in zip(ranked, weights, strict=True):
                        rankings += best(self._fuse(*row, weight)[None], k).each()
                report(rows.stop, "")
        return ranked

    def _rows(self, rows: slice) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        return zip(range(rows.start, rows.stop), self.first.scores(rows), self.second.scores(rows), strict=True)

    def _fuse(self, query: int, first: np.ndarray, second: np.ndarray, weight: float | None) -> np.ndarray:
        if query not in self.left_out:
            return fuse(first, second, weight)
        fused = np.full(len(first), -np.inf, np.float32)
        ranked = np.delete(np.arange(len(first)), self.left_out[query])
        if len(ranked):
            fused[ranked] = fuse(first[ranked], second[ranked], weight)
        return fused


def fuse_lists(first: Ranked, second: Ranked, weight: float | None) -> Ranked:
    """Fuse two rankings of some documents; a document that one of them lacks has the lowest of its scores.

    Where one has only a single score, as a ranking of one document has, what it lacks is below that.
    """
    documents = np.union1d(first.documents, second.documents)
    if not len(documents):
        return first
    scores = fuse(_filled(first, documents), _filled(second, documents), weight)
    order = order_of(scores, documents)
    return Ranked(documents[order], scores[order])


def reordered(ranked: Ranked, scores: np.ndarray, weight: float | None) -> Ranked:
    """Order the first documents by their old and new scores, fp32 [n]; the others follow, each below the one before.

    `weight` is of the new scores.
    """
    if not len(scores):
        return ranked
    reranked, tail = ranked.documents[: len(scores)], ranked.documents[len(scores) :]
    scores = fuse(ranked.scores[: len(scores)], scores, weight)
    order = order_of(scores, reranked)
    tail_scores = scores.min() - np.arange(1, len(tail) + 1, dtype=np.float32)
    return Ranked(np.concatenate([reranked[order], tail]), np.concatenate([scores[order], tail_scores]))


def _filled(ranked: Ranked, documents: np.ndarray) -> np.ndarray:
    """Return the scores of documents, int64 [n] in order, fp32 [n]; of an empty ranking, zeros."""
    if not len(ranked.scores):
        return np.zeros(len(documents), np.float32)
    lowest = ranked.scores.min()
    if lowest == ranked.scores.max():
        lowest -= max(1, abs(lowest))
    scores = np.full(len(documents), lowest, np.float32)
    scores[documents.searchsorted(ranked.documents)] = ranked.scores
    return scores


def best_weight(means: Sequence[float]) -> float:
    """Return the weight with the largest nDCG@10 (of ties, the smallest), given the means for each of WEIGHTS.

    MRR@10 would be noise between systems that BM25 leads: it depends on the first few ranks of a few hundred queries.
    """
    return WEIGHTS[int(np.argmax(np.round(means, 12)))]  # rounded: the last bits depend on the order of the sum
