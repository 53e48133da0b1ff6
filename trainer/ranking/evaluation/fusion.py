"""Fuse two systems into one: by their scores, standardised for each query and weighted, or by their reciprocal ranks.

A weight w means (1 - w) * the first system's standardised scores + w * the second's. None stands for reciprocal ranks
(Cormack, Clarke and Buettcher, 2009), which need no weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from deepsiam.data_prep.common.progress import meter
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.retrieval.search import SCORES, Ranked, best, order_of, row_blocks
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import ScoresAll

WEIGHTS = tuple(i / 10 for i in range(11))
SPLIT = "dev"  # where the weight is chosen, unless another split is named
NONE: Mapping[int, np.ndarray] = MappingProxyType({})
ONLY_SECOND = 1.0  # the weight that ignores the first system
RANK_OFFSET = 60  # the constant of Cormack et al.


def standardise(scores: np.ndarray) -> np.ndarray:
    """Shift and scale each row of fp32 [q, N] to mean 0 and standard deviation 1, fp64; equal scores give zeros."""
    centred = scores.astype(np.float64)
    centred -= centred.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    constant = scores.min(axis=1, keepdims=True) == scores.max(axis=1, keepdims=True)  # its mean may be rounded
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, deviation))


def reciprocal_ranks(scores: np.ndarray) -> np.ndarray:
    """Compute 1 / (60 + rank) for each score of a row, fp32 [q, N] to fp64.

    Equal scores share the last of their ranks. So BM25 gives next to nothing to all documents that share no word with
    the query, and a system without a preference does not change the other's order.
    """
    ranks = [len(row) - np.searchsorted(np.sort(row), row, side="left") for row in scores]
    return 1.0 / (RANK_OFFSET + np.array(ranks))


def fuse(first: np.ndarray, second: np.ndarray, weight: float | None) -> np.ndarray:
    """Fuse two systems' scores fp32 [q, N] of the same documents into one, fp32 [q, N].

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
    """Two systems that score all documents, as one more; see `rank` for the arguments."""

    first: ScoresAll
    second: ScoresAll
    weight: float | None
    left_out: Mapping[int, np.ndarray]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, the number of documents."""
        return self.first.shape

    def scores(self, rows: slice) -> np.ndarray:
        """Return the fused scores of all documents, fp32 [q, N]; -inf for those that are left out."""
        both = self.first.scores(rows), self.second.scores(rows)
        fused = np.full_like(both[0], -np.inf)
        for row, query in enumerate(range(rows.start, rows.stop)):
            positions = _ranked(fused.shape[1], self.left_out.get(query))
            if len(positions):
                first, second = (scores[row : row + 1, positions] for scores in both)
                fused[row, positions] = fuse(first, second, self.weight)[0]
        return fused


def rank(
    first: ScoresAll,
    second: ScoresAll,
    weights: Sequence[float | None],
    k: int,
    left_out: Mapping[int, np.ndarray] = NONE,
    *,
    held: int = SCORES,
) -> list[list[Ranked]]:
    """Rank the k best documents of the pool for each query, by each of the weights: [weight][query].

    Equal scores rank in the pool's order. All documents are ranked, also those that share no word with the query.

    Args:
        first: scores the same queries and pool as `second`.
        second: weighted by w where `first` is weighted by 1 - w.
        weights: in [0, 1], or None for reciprocal ranks.
        k: all N are ranked where N < k.
        left_out: documents of the pool that a query does not rank, as if the pool lacked them, by the query's number.
        held: the most scores of each system held at once, but at least those of one query; the result does not depend
            on it.
    """
    ranked: list[list[Ranked]] = [[] for _ in weights]
    with meter("fuse", "queries", first.shape[0]) as report:
        for rows in row_blocks(first.shape, held):
            # query by query: fusing then needs only a few rows in fp64, not a few blocks
            each = zip(
                range(rows.start, rows.stop), first.scores(rows)[:, None], second.scores(rows)[:, None], strict=True
            )
            for query, a, b in each:
                positions = _ranked(a.shape[1], left_out.get(query)) if query in left_out else None
                if positions is not None:
                    a, b = a[:, positions], b[:, positions]
                for rankings, weight in zip(ranked, weights, strict=True):
                    ((documents, scores),) = best(fuse(a, b, weight), k).each() if a.size else [NOTHING]
                    rankings.append(Ranked(documents if positions is None else positions[documents], scores))
            report(rows.stop, "")
    return ranked


def _ranked(documents: int, exclusions: np.ndarray | None) -> np.ndarray:
    """Return the positions of all documents but the exclusions, int64."""
    return np.delete(np.arange(documents), [] if exclusions is None else exclusions)


def fuse_lists(first: Ranked, second: Ranked, weight: float | None) -> Ranked:
    """Fuse two rankings of some documents; a document that one of them lacks has the lowest of its scores.

    Where one has only a single score, as a ranking of one document has, what it lacks is below that.
    """
    documents = np.union1d(first.documents, second.documents)
    if not len(documents):
        return first
    scores = fuse(_filled(first, documents)[None], _filled(second, documents)[None], weight)[0]
    order = order_of(scores, documents)
    return Ranked(documents[order], scores[order])


def reordered(ranked: Ranked, scores: np.ndarray, weight: float | None) -> Ranked:
    """Order the first documents by their old and new scores, fp32 [n]; the others follow, each below the one before.

    `weight` is of the new scores.
    """
    if not len(scores):
        return ranked
    first, rest = ranked.documents[: len(scores)], ranked.documents[len(scores) :]
    scores = fuse(ranked.scores[None, : len(scores)], scores[None], weight)[0]
    order = order_of(scores, first)
    after = scores.min() - np.arange(1, len(rest) + 1, dtype=np.float32)
    return Ranked(np.concatenate([first[order], rest]), np.concatenate([scores[order], after]))


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


def best_weight(measured: Sequence[Metrics]) -> float:
    """Return the weight with the largest nDCG@10 (of ties, the smallest weight), given the metrics for each of WEIGHTS.

    MRR@10 would be noise between systems that BM25 leads: it depends on the first few ranks of a few hundred queries.
    """
    means = [metrics.means["ndcg@10"] for metrics in measured]
    return WEIGHTS[int(np.argmax(np.round(means, 12)))]  # rounded: the last bits depend on the order of the sum
