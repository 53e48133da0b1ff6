"""Re-rank what a system found, by the scores of a model, or by these and those that it was found by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.ranking.evaluation import fusion
from trainer.ranking.ranker import Ranker
from trainer.ranking.retrieval.search import Ranked, order_of
from trainer.ranking.retrieval.system import Texts

ALONE = 1.0  # the weight of the new scores where only these count


def rerank_task(ranker: Ranker, task: Texts, found: Sequence[Ranked], documents: int) -> list[Ranked]:
    """Re-rank the first documents of each ranking by new scores alone; the arguments are those of `scores_again`.

    Raises:
        InputError: scores or vectors are not finite.
    """
    scores = scores_again(ranker, task, found, documents)
    return [reordered(*each, ALONE) for each in zip(found, scores, strict=True)]


def scores_again(ranker: Ranker, task: Texts, found: Sequence[Ranked], documents: int) -> list[np.ndarray]:
    """Score the first documents of each ranking, fp32 [n] for each query.

    Args:
        ranker: of any kind.
        task: the queries and the pool.
        found: the ranking of each query, which may be empty.
        documents: how many documents of each ranking to score.

    Raises:
        InputError: scores or vectors are not finite.
    """
    lists = [
        (query, [task.pool[i] for i in ranked.documents[:documents].tolist()])
        for query, ranked in zip(task.queries, found, strict=True)
        if len(ranked.documents)
    ]
    scores = iter(ranker.scores(lists, "re-rank") if lists else [])
    return [next(scores) if len(ranked.documents) else np.empty(0, np.float32) for ranked in found]


def reordered(ranked: Ranked, scores: np.ndarray, weight: float | None) -> Ranked:
    """Order the first documents by their old and new scores, fp32 [n]; the others follow, each below the one before.

    `weight`, of the new scores, is as in `fusion`.
    """
    if not len(scores):
        return ranked
    first, rest = ranked.documents[: len(scores)], ranked.documents[len(scores) :]
    scores = fusion.fuse(ranked.scores[None, : len(scores)], scores[None], weight)[0]
    order = order_of(scores, first)
    after = scores.min() - np.arange(1, len(rest) + 1, dtype=np.float32)
    return Ranked(np.concatenate([first[order], rest]), np.concatenate([scores[order], after]))
