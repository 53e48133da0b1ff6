"""The first documents that a system found, re-ranked by a model that reads pairs."""

import numpy as np

from data_prep.collections.collection import Collection
from tests.trainer.ranking.retrieval.fakes import overlap_run, plain_overlap, positions, ranked_as
from trainer.ranking.evaluation.rerank import ALONE, reordered, scores_again
from trainer.ranking.evaluation.task import Task
from trainer.ranking.rankers.bm25 import Bm25Ranker
from trainer.ranking.rankers.registry import ranker_of
from trainer.ranking.retrieval.search import Ranked


def rerank(task: Task, found: list[Ranked], documents: int) -> list[Ranked]:
    """Re-rank with the `Overlap` model."""
    scores = scores_again(ranker_of(overlap_run(task.collection), task.collection), task, found, documents)
    return [reordered(*each, ALONE) for each in zip(found, scores, strict=True)]


def test_the_first_are_ranked_by_score_and_the_others_follow(opened: Collection) -> None:
    task = Task.of(opened, "test")
    found = Bm25Ranker(task.collection).system(task).rank(40)
    assert min(map(len, positions(found))) > 5
    found[3], found[4] = ranked_as([]), ranked_as(positions(found)[4][:2])  # BM25 may find nothing, or fewer
    ranked = rerank(task, found, 5)
    assert all((np.diff(row.scores) <= 0).all() for row in ranked)
    moved = 0
    for query, first, again in zip(task.queries, positions(found), positions(ranked), strict=True):
        tokens = opened.queries.tokens(query)[:6].tolist()
        score = {i: plain_overlap(tokens, opened.corpus.tokens(task.pool[i])[:14].tolist()) for i in first[:5]}
        assert again[:5] == sorted(first[:5], key=lambda i: (-score[i], i))  # noqa: B023
        assert again[5:] == first[5:]
        moved += again != first
    assert moved > 10


def test_nothing_found_is_nothing_ranked(opened: Collection) -> None:
    task = Task.of(opened, "test")
    ranked = rerank(task, [ranked_as([])] * 20, 10)
    assert positions(ranked) == [[]] * 20


def test_documents_of_equal_scores_are_in_the_pools_order_whatever_was_found_first(opened: Collection) -> None:
    task = Task.of(opened, "test")
    found = Bm25Ranker(task.collection).system(task).rank(40)
    backwards = [ranked_as(row[::-1]) for row in positions(found)]
    again = [positions(rerank(task, some, 40)) for some in (found, backwards)]
    assert again[0] == again[1]
    assert np.mean([row == sorted(row) for row in again[0]]) < 1
