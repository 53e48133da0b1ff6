"""The queries for which two systems differ most, and what each ranks first for them (SEED, Table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.search import Ranked

QUERIES = 5  # shown for each direction
PASSAGES = 3  # shown for each system


@dataclass(frozen=True)
class RankedPassage:
    """A ranked document."""

    name: str  # its id
    text: str
    score: float
    relevant: bool


@dataclass(frozen=True)
class Difference:
    """A query, and what two systems rank first for it."""

    query: str
    values: tuple[float, float]  # of the metric
    first_relevant: tuple[int | None, int | None]  # the rank of the first relevant document; None: it is not ranked
    passages: tuple[list[RankedPassage], list[RankedPassage]]


def most_different(
    task: Task, ranked: tuple[Sequence[Ranked], Sequence[Ranked]], metric: str
) -> tuple[list[Difference], list[Difference]]:
    """Find the queries, `QUERIES` at most, that the second system ranks better than the first by most, and worse.

    Args:
        task: the queries and the pool.
        ranked: the rankings of both systems, one for each query.
        metric: the metric to compare; of equal differences, the earlier query comes first.
    """
    baseline, values = (task.measure(rankings).values[metric] for rankings in ranked)
    differences = values - baseline
    order = np.argsort(-abs(differences), kind="stable")
    wins = [i for i in order.tolist() if differences[i] > 0][:QUERIES]
    losses = [i for i in order.tolist() if differences[i] < 0][:QUERIES]

    def shown(numbers: Sequence[int]) -> list[Difference]:
        return [_difference(task, i, (ranked[0][i], ranked[1][i]), (baseline[i], values[i])) for i in numbers]

    return shown(wins), shown(losses)


def scores_of(task: Task, ranked: Sequence[Ranked]) -> dict[str, np.ndarray]:
    """Return the scores of all ranked documents, fp32: those of relevant documents, and those of others."""
    relevant = [flags for _, flags in _relevance(task, ranked)]
    scores = [ranking.scores for ranking in ranked]
    flags = np.concatenate(relevant) if relevant else np.empty(0, bool)
    every = np.concatenate(scores) if scores else np.empty(0, np.float32)
    return {"relevant": every[flags], "others": every[~flags]}


def _relevance(task: Task, ranked: Sequence[Ranked]) -> Iterator[tuple[Ranked, np.ndarray]]:
    """Yield each ranking, and which of its documents are relevant, bool [n]."""
    names = task.collection.corpus.ids
    for ranking, judged in zip(ranked, task.qrels.values(), strict=True):
        flags = [judged.get(names[task.pool[i]], 0) > 0 for i in ranking.documents.tolist()]
        yield ranking, np.array(flags, bool)


def _difference(task: Task, number: int, ranked: tuple[Ranked, Ranked], values: tuple[float, float]) -> Difference:
    judged = list(task.qrels.values())[number]
    names, texts = task.collection.corpus.ids, task.collection.corpus
    first_relevant, passages = [], []
    for documents, scores in ranked:
        ids = [names[task.pool[i]] for i in documents.tolist()]
        ranks = [rank for rank, name in enumerate(ids, 1) if judged.get(name, 0) > 0]
        first_relevant.append(ranks[0] if ranks else None)
        passages.append(
            [
                RankedPassage(name, texts.text(task.pool[i]), float(score), judged.get(name, 0) > 0)
                for name, i, score in zip(ids[:PASSAGES], documents.tolist(), scores, strict=False)
            ]
        )
    query = task.collection.queries.text(task.queries[number])
    return Difference(query, values, (first_relevant[0], first_relevant[1]), (passages[0], passages[1]))
