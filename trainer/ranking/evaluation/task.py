"""Rank a split's queries over its pool of documents, by a model or by BM25, and measure the rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.collections.relevant import IdenticalIds, left_out
from data_prep.common.errors import InputError
from trainer.ranking.evaluation.metrics import DEPTH, Metrics, measure
from trainer.ranking.ranker import Ranker
from trainer.ranking.retrieval.search import Ranked
from trainer.ranking.retrieval.system import System, Texts, in_pool_order

TIE_RULE = "equal scores rank in an order drawn once for all systems"


@dataclass(frozen=True)
class Task(Texts):
    """The judged queries of a split, in the order of `qrels`, and the pool of documents that they are ranked over."""

    qrels: dict[str, dict[str, int]]
    left_out: dict[int, int] = field(default_factory=dict)  # positions in `pool`, by the query's position in `queries`

    @classmethod
    def of(cls, collection: Collection, split: str, identical_ids: IdenticalIds = "auto") -> Task:
        """Read a split's task; `identical_ids` is as in `data_prep.collections.relevant.left_out`.

        Raises:
            InputError: the collection has no such split, or its pool is empty.
        """
        qrels = collection.qrels(split)
        pool = in_pool_order(collection.pool(split)).tolist()
        if not pool:
            raise InputError(f"{collection.directory}: the pool of split {split} is empty: list documents or remove it")
        queries: list[int] = collection.queries.ids.find([*qrels]).tolist()
        document_of = left_out(collection, split, identical_ids)
        position = {document: place for place, document in enumerate(pool)} if document_of else {}
        places = {row: position.get(document_of.get(query, -1)) for row, query in enumerate(queries)}
        return cls(collection, queries, pool, qrels, {row: at for row, at in places.items() if at is not None})

    def name(self, position: int) -> str:
        """Return the id of a document of the pool."""
        return self.collection.corpus.ids[self.pool[position]]

    def rank(self, system: System, k: int) -> list[Ranked]:
        """Return at most k documents for each query, best first, without those that are left out."""
        return self.first(system.rank(min(k + bool(self.left_out), len(self.pool))), k)

    def first(self, ranked: Sequence[Ranked], k: int) -> list[Ranked]:
        """Return the first k documents of each ranking, without those that are left out."""
        kept = []
        for row, (documents, scores) in enumerate(ranked):
            ranks = documents != self.left_out.get(row, -1)
            kept.append(Ranked(documents[ranks][:k], scores[ranks][:k]))
        return kept

    def measure(self, ranked: Sequence[Ranked], more: Sequence[str] = ()) -> Metrics:
        """Compute the metrics of rankings, one for each query; `more` names additional metrics."""
        names = self.collection.corpus.ids
        named = ([names[self.pool[i]] for i in of_query.documents.tolist()] for of_query in ranked)
        return measure(self.qrels, dict(zip(self.qrels, named, strict=True)), more)


def has_relevant(collection: Collection, split: str) -> bool:
    """Return whether the pool of a split has a document that is relevant to one of its queries."""
    groups = collection.judged_groups(split)
    relevant = np.asarray(groups.candidates.flat)[np.asarray(groups.labels) > 0]
    return bool(len(relevant) if groups.pool is None else np.isin(relevant, groups.pool).any())


def evaluate_split(ranker: Ranker, split: str) -> Metrics:
    """Rank a split over its pool, and measure it.

    Raises:
        InputError: no such split, or the ranker does not search.
    """
    task = Task.of(ranker.collection, split)
    return task.measure(task.rank(ranker.system(task), DEPTH))
