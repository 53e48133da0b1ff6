"""Re-rank what another system found, by a model that cannot search: it reads pairs, or scores a list as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer.ranking.ranker import Ranker
from trainer.ranking.retrieval.search import Ranked, order_of
from trainer.ranking.retrieval.system import Texts


class Rerank(NamedTuple):
    """What to re-rank."""

    system: str = "bm25"  # the name of the system that searches
    documents: int = 100  # how many of each query's first documents

    def __str__(self) -> str:
        """Format as on the command line."""
        return f"{self.system}:{self.documents}"


def rerank_task(ranker: Ranker, task: Texts, found: Sequence[Ranked], documents: int) -> list[Ranked]:
    """Re-rank the first documents of each ranking; the others follow in the order in which they were found.

    Args:
        ranker: of any kind.
        task: the queries and the pool.
        found: the ranking of each query, which may be empty.
        documents: how many documents of each ranking to re-rank.

    Raises:
        InputError: scores or vectors are not finite.
    """
    return [again(*both) for both in zip(found, scores_again(ranker, task, found, documents), strict=True)]


def scores_again(ranker: Ranker, task: Texts, found: Sequence[Ranked], documents: int) -> list[np.ndarray]:
    """Score the first documents of each ranking, fp32 [n] for each query; arguments and errors: see `rerank_task`."""
    lists = [
        (query, [task.pool[i] for i in ranked.documents[:documents].tolist()])
        for query, ranked in zip(task.queries, found, strict=True)
        if len(ranked.documents)
    ]
    scores = iter(ranker.scores(lists, "re-rank") if lists else [])
    return [next(scores) if len(ranked.documents) else np.empty(0, np.float32) for ranked in found]


def again(ranked: Ranked, scores: np.ndarray) -> Ranked:
    """Order the first documents by new scores, fp32 [n]; the others get lower scores, each below the one before."""
    if not len(scores):
        return ranked
    first, rest = ranked.documents[: len(scores)], ranked.documents[len(scores) :]
    order = order_of(scores, first)
    after = scores.min() - np.arange(1, len(rest) + 1, dtype=np.float32)
    return Ranked(np.concatenate([first[order], rest]), np.concatenate([scores[order], after]))
