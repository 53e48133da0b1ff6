"""Rank again what another system found, by a model that cannot search: it reads pairs, or scores a list as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer.checkpoints.load import LoadedModel
from trainer.retrieval.lists import list_scores
from trainer.retrieval.search import order_of
from trainer.retrieval.task import Task


class Rerank(NamedTuple):
    """What is ranked again."""

    system: str = "bm25"  # the name of the one that searches
    documents: int = 100  # the first ones of each query

    def __str__(self) -> str:
        """As the command line has it."""
        return f"{self.system}:{self.documents}"


def rerank_task(trained: LoadedModel, task: Task, found: Sequence[Sequence[int]], documents: int) -> list[list[int]]:
    """Rank the first documents of each ranking again; those after them follow in the order that they were found in.

    Args:
        trained: any matching model.
        task: the queries and the pool.
        found: for each query positions in the pool, best first; may be empty.
        documents: how many of them are ranked again.

    Raises:
        InputError: as `list_scores`.
    """
    first = [np.asarray(ranking[:documents], np.int64) for ranking in found]
    lists = [
        (query, [task.pool[i] for i in positions])
        for query, positions in zip(task.queries, first, strict=True)
        if len(positions)
    ]
    scores = iter(list_scores(trained, task.collection, lists, "re-rank") if lists else [])
    reranked = [top[order_of(next(scores), top)] if len(top) else top for top in first]
    return [[*top.tolist(), *ranking[documents:]] for top, ranking in zip(reranked, found, strict=True)]
