"""Rank the candidates that a split gives for each query: replies, answers, the titles of an impression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deepsiam.data_prep.collections.collection import SPLITS, Collection
from deepsiam.data_prep.collections.groups import Group
from deepsiam.data_prep.collections.relevant import IdenticalIds, left_out
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.metrics import Metrics, measure_lists
from deepsiam.trainer.ranking.evaluation.results_file import About, CandidateLists, Identical, Results, results_of
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.retrieval.search import order_of
from deepsiam.trainer.ranking.retrieval.system import Texts, in_pool_order


@dataclass(frozen=True)
class CandidateTask(Texts):
    """The lists of a split that have a relevant document; the pool contains the candidates of all these lists.

    A query that has several lists is ranked for each of them.
    """

    lists: list[tuple[int, np.ndarray]]  # the number of a query among `queries`; positions in `pool`, int64 [n]
    grades: list[np.ndarray]  # fp32 [n], of each list
    elsewhere: list[np.ndarray]  # fp32 [m], the grades of the relevant documents that are not ranked
    left_out: int  # lists without a relevant document: all their rankings are equally good, as in trec_eval
    identical: int  # lists without the document with the query's id

    @classmethod
    def of(cls, collection: Collection, split: str, identical_ids: IdenticalIds = "auto") -> CandidateTask:
        """Read a split's lists; `identical_ids` is as in `data_prep.collections.relevant.left_out`.

        Raises:
            InputError: the collection has no such split, or its labels are not relevance, or no list has both a
                relevant candidate and another one.
        """
        groups, where = collection.judged_groups(split), collection.directory / SPLITS / split
        absent = left_out(collection, split, identical_ids)
        groups_ranked, elsewhere, identical = list[Group](), list[np.ndarray](), 0
        for i in range(len(groups)):
            query, candidates, labels = groups[i]
            ranked = candidates != absent.get(query, -1)
            relevant_but_absent = labels[~ranked & (labels > 0)].tolist()  # counts as not found, as in BEIR
            unlisted = np.array([*(label for _, label in groups.elsewhere(i)), *relevant_but_absent], np.float32)
            if ranked.any() and (len(unlisted) or (labels[ranked] > 0).any()):
                groups_ranked.append(Group(query, candidates[ranked], labels[ranked]))
                elsewhere.append(unlisted)
                identical += not ranked.all()
        if not any((group.labels > 0).any() and (group.labels <= 0).any() for group in groups_ranked):
            raise InputError(
                f"{where}: has no candidate lists, with a relevant candidate and another one: leave out --candidates, "
                "to rank the whole pool"
            )
        pool = in_pool_order(np.unique(np.concatenate([group.candidates for group in groups_ranked])))
        queries = np.unique([group.query for group in groups_ranked])
        position = np.empty(len(collection.corpus), np.int64)
        position[pool] = np.arange(len(pool))
        lists = [(int(queries.searchsorted(group.query)), position[group.candidates]) for group in groups_ranked]
        grades, without = [np.asarray(group.labels) for group in groups_ranked], len(groups) - len(groups_ranked)
        return cls(collection, queries.tolist(), pool.tolist(), lists, grades, elsewhere, without, identical)

    def measure(self, scores: Sequence[np.ndarray]) -> Metrics:
        """Compute the metrics from the scores of each list's candidates, fp32 [n]; ties are in pool order."""
        orders = (order_of(row, positions) for row, (_, positions) in zip(scores, self.lists, strict=True))
        return measure_lists([grades[order] for grades, order in zip(self.grades, orders, strict=True)], self.elsewhere)

    def measured(self, ranker: Ranker) -> Metrics:
        """Score each list with a ranker, and measure its rankings."""
        return self.measure(
            ranker.scores([(self.queries[query], [self.pool[i] for i in places]) for query, places in self.lists])
        )


def compare_lists(systems: Systems, split: str, identical_ids: IdenticalIds = "auto") -> Results:
    """Evaluate BM25 and models on candidate lists.

    Raises:
        InputError: the split has no candidate lists, or a model gives no score; before the first is evaluated.
    """
    for ranker in systems.rankers.values():
        ranker.require_score()
    task = CandidateTask.of(systems.collection, split, identical_ids)
    metrics = {name: task.measured(ranker) for name, ranker in systems.single_rankers().items()}
    sizes = [len(positions) for _, positions in task.lists]
    about = About(
        collection=str(systems.collection.directory),
        split=split,
        queries=len(task.queries),
        corpus=len(task.pool),
        ignore_identical_ids=Identical(rule=identical_ids, queries=task.identical),
        candidates=CandidateLists(lists=len(task.lists), left_out=task.left_out, fewest=min(sizes), most=max(sizes)),
    )
    return results_of(metrics, systems.single_stages(), about)
