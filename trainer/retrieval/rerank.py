"""Rank again what another system found, by a model that reads a query and a document together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer.checkpoints.load import TrainedModel
from trainer.retrieval.pairs import pair_scores
from trainer.retrieval.task import Task


class Rerank(NamedTuple):
    """What is ranked again."""

    system: str = "bm25"  # the name of the one that searches
    documents: int = 100  # the first ones of each query


def rerank_task(trained: TrainedModel, task: Task, found: Sequence[Sequence[int]], documents: int) -> list[list[int]]:
    """Rank the first documents of each ranking again; those after them follow in the order that they were found in.

    Args:
        trained: a model that reads pairs.
        task: the queries and the pool.
        found: for each query positions in the pool, best first; may be empty.
        documents: how many of them are ranked again.

    Raises:
        InputError: as `pair_scores`.
    """
    first = [np.asarray(ranking[:documents], np.int64) for ranking in found]
    lists = [
        (query, [task.pool[i] for i in positions])
        for query, positions in zip(task.queries, first, strict=True)
        if len(positions)
    ]
    scores = iter(pair_scores(trained, task.collection, lists, "re-rank") if lists else [])
    reranked = [by_score(next(scores), positions) if len(positions) else positions for positions in first]
    return [[*top.tolist(), *ranking[documents:]] for top, ranking in zip(reranked, found, strict=True)]


def by_score(scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Order positions in the pool int64 [n] by their scores fp32 [n], the best first, equal scores in the pool's order."""
    return positions[np.lexsort((positions, -scores))]
