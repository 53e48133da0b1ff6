"""Rank a split's queries over its pool of documents, by a model or by BM25, and measure the rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import IdenticalIds, left_out, unranked
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metrics, measure
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.ranking.retrieval.system import System, Texts, in_pool_order

TIE_RULE = "documents with equal scores rank in one random order, the same for every system"


@dataclass(frozen=True)
class Task(Texts):
    """The judged queries of a split, in the order of `qrels`, and the pool of documents that they are ranked over."""

    qrels: dict[str, dict[str, int]]
    left_out: Mapping[int, np.ndarray] = field(default_factory=dict)  # positions in `pool`, by that in `queries`
    identical: int = 0  # queries without the document with their id
    rule: IdenticalIds = "auto"  # of that document

    @classmethod
    def of(
        cls,
        collection: Collection,
        split: str,
        identical_ids: IdenticalIds = "auto",
        *,
        qrels: dict[str, dict[str, int]] | None = None,
        pool: list[int] | None = None,
    ) -> Task:
        """Read a split's task; `identical_ids` is as in `data_prep.collections.relevant.left_out`.

        `qrels` and `pool` replace the split's, where some of its queries or documents are enough.

        Raises:
            InputError: the collection has no such split, or its pool is empty.
        """
        qrels = collection.qrels(split) if qrels is None else qrels
        pool = in_pool_order(collection.pool(split)).tolist() if pool is None else pool
        if not pool:
            raise InputError(f"{collection.directory}: the pool of split {split} is empty: list documents or remove it")
        queries: list[int] = collection.queries.ids.find([*qrels]).tolist()
        namesakes = left_out(collection, split, identical_ids)
        exclusions = unranked(collection, queries, namesakes)
        place = {document: position for position, document in enumerate(pool)} if exclusions else {}
        positions = {
            row: np.array([place[document] for document in exclusions[query].tolist() if document in place], np.int64)
            for row, query in enumerate(queries)
            if query in exclusions
        }
        identical = sum(namesakes.get(query) in place for query in queries)
        without = {row: documents for row, documents in positions.items() if len(documents)}
        return cls(collection, queries, pool, qrels, without, identical, identical_ids)

    def name(self, position: int) -> str:
        """Return the id of a document of the pool."""
        return self.collection.corpus.ids[self.pool[position]]

    def rank(self, system: System, k: int) -> list[Ranked]:
        """Return at most k documents for each query, best first, without those that are left out."""
        spare = max(map(len, self.left_out.values()), default=0)
        return self.first(system.rank(min(k + spare, len(self.pool))), k)

    def first(self, ranked: Sequence[Ranked], k: int) -> list[Ranked]:
        """Return the first k documents of each ranking, without those that are left out."""
        shortened = []
        for row, (documents, scores) in enumerate(ranked):
            ranks = ~np.isin(documents, self.left_out.get(row, ()))
            shortened.append(Ranked(documents[ranks][:k], scores[ranks][:k]))
        return shortened

    def measure(self, ranked: Sequence[Ranked], extra_metrics: Sequence[str] = ()) -> Metrics:
        """Compute the metrics of rankings, one for each query; `extra_metrics` names additional metrics."""
        names = self.collection.corpus.ids
        documents = ([names[self.pool[i]] for i in row.documents.tolist()] for row in ranked)
        return measure(self.qrels, dict(zip(self.qrels, documents, strict=True)), extra_metrics)


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
