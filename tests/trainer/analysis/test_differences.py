"""The queries for which two systems differ most."""

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.analysis.differences import PASSAGES, most_different, scores_of
from deepsiam.trainer.ranking.evaluation.task import Task
from tests.trainer.ranking.retrieval.fakes import ranked_as


@pytest.fixture(scope="module")
def task(toy_collection: str) -> Task:
    return Task.of(Collection.open(toy_collection), "test")


def place_of(task: Task, query: int) -> int:
    """The position in the pool of a document that is relevant to a query."""
    names = [task.collection.corpus.ids[i] for i in task.pool]
    judged = list(task.qrels.values())[query]
    return next(i for i, name in enumerate(names) if judged.get(name, 0) > 0)


def others(task: Task, query: int) -> list[int]:
    names = [task.collection.corpus.ids[i] for i in task.pool]
    judged = list(task.qrels.values())[query]
    return [i for i, name in enumerate(names) if judged.get(name, 0) == 0]


def test_the_largest_differences_come_first(task: Task) -> None:
    n = len(task.queries)
    first = [ranked_as([*others(task, i)[:1], place_of(task, i)]) for i in range(n)]  # reciprocal rank 1/2
    second = list(first)
    second[3] = ranked_as([place_of(task, 3)])  # reciprocal rank 1: ahead by 1/2
    second[5] = ranked_as(others(task, 5)[:4])  # reciprocal rank 0: behind by 1/2
    second[7] = ranked_as([*others(task, 7)[:2], place_of(task, 7)])  # reciprocal rank 1/3: behind by 1/6
    better, worse = most_different(task, (first, second), "mrr@10")
    assert [found.query for found in better] == [task.collection.queries.text(task.queries[3])]
    assert [found.query for found in worse] == [task.collection.queries.text(task.queries[i]) for i in (5, 7)]
    assert [found.first_relevant for found in (*better, *worse)] == [(2, 1), (2, None), (2, 3)]
    assert better[0].values == pytest.approx((0.5, 1))
    assert [passage.relevant for passage in better[0].passages[0]] == [False, True]
    assert [passage.relevant for passage in worse[0].passages[1]] == [False] * PASSAGES
    shown = better[0].passages[1][0]
    document = task.pool[place_of(task, 3)]
    assert (shown.name, shown.text) == (task.collection.corpus.ids[document], task.collection.corpus.text(document))


def test_scores_are_told_apart_by_relevance(task: Task) -> None:
    ranked = [ranked_as([]) for _ in task.queries]
    ranked[1] = ranked_as([others(task, 1)[0], place_of(task, 1), others(task, 1)[1]])  # scores 0, -1, -2
    scores = scores_of(task, ranked)
    np.testing.assert_array_equal(scores["relevant"], [-1])
    np.testing.assert_array_equal(scores["others"], [0, -2])
