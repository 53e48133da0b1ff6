"""Pipelines: a model re-ranks the documents found, by its own scores or fused with those of the stage before."""

import numpy as np
import pytest

from data_prep.collections.collection import Collection
from tests.trainer.ranking.retrieval.fakes import overlap_run, plain_overlap, tokens_run
from trainer.ranking.evaluation import fusion
from trainer.ranking.evaluation.pipeline import ALONE, Pipeline, Stage, choose_weights, run
from trainer.ranking.evaluation.task import Task
from trainer.ranking.rankers.bm25 import Bm25Ranker
from trainer.ranking.rankers.registry import ranker_of
from trainer.ranking.retrieval.search import Ranked


@pytest.fixture(scope="module")
def task(toy_collection: str) -> Task:
    return Task.of(Collection.open(toy_collection), "test")


@pytest.fixture(scope="module")
def found(task: Task) -> list[Ranked]:
    return Bm25Ranker(task.collection).system(task).rank(30)


def plain(task: Task, found: list[Ranked], documents: int, weight: float | None) -> list[list[int]]:
    """The rankings of a stage that re-ranks with the `Overlap` model."""
    rankings = []
    for query, ranked in zip(task.queries, found, strict=True):
        first, rest = ranked.documents[:documents].tolist(), ranked.documents[documents:].tolist()
        tokens = task.collection.queries.tokens(query)[:6].tolist()
        texts = [task.collection.corpus.tokens(task.pool[i])[:14].tolist() for i in first]
        new = np.array([plain_overlap(tokens, text) for text in texts], np.float64)
        old = ranked.scores[:documents].astype(np.float64)
        if weight is None:
            ranks = [[1 / (60 + sum(other >= one for other in scores)) for one in scores] for scores in (old, new)]
            fused = np.add(*ranks)
        else:
            a, b = ((scores - scores.mean()) / scores.std() if scores.std() else 0 * scores for scores in (old, new))
            fused = (1 - weight) * a + weight * b
        fused = fused.astype(np.float32)
        rankings.append([first[i] for i in np.lexsort((first, -fused))] + rest)
    return rankings


def documents_of(rankings: list[Ranked]) -> list[list[int]]:
    return [ranked.documents.tolist() for ranked in rankings]


@pytest.mark.parametrize("weight", [0.3, None])
def test_an_interpolated_stage_ranks_by_both_scores(task: Task, found: list[Ranked], weight: float | None) -> None:
    models = {"overlap": ranker_of(overlap_run(task.collection), task.collection)}
    pipeline = Pipeline("bm25", (Stage(12, "overlap", interpolated=True),))
    ranked, seconds = run(pipeline, task, found, models, [weight])
    assert documents_of(ranked) == plain(task, found, 12, weight)
    assert documents_of(ranked) != documents_of(found)
    assert len(seconds) == 1
    assert all((np.diff(row.scores) <= 0).all() for row in ranked)


def test_each_stage_gets_the_scores_of_the_one_before(task: Task, found: list[Ranked]) -> None:
    models = {
        "overlap": ranker_of(overlap_run(task.collection), task.collection),
        "tokens": ranker_of(tokens_run(task.collection), task.collection),
    }
    both = Pipeline("bm25", (Stage(20, "tokens", interpolated=False), Stage(7, "overlap", interpolated=True)))
    first, _ = run(both._replace(stages=both.stages[:1]), task, found, models, [ALONE])
    ranked, _ = run(both, task, found, models, [ALONE, 0.6])
    assert documents_of(ranked) == plain(task, first, 7, 0.6)


def test_the_weight_is_the_smallest_with_the_best_ndcg(task: Task, found: list[Ranked]) -> None:
    models = {
        "overlap": ranker_of(overlap_run(task.collection), task.collection),
        "tokens": ranker_of(tokens_run(task.collection), task.collection),
    }
    pipeline = Pipeline("bm25", (Stage(9, "tokens", interpolated=False), Stage(9, "overlap", interpolated=True)))
    alone, weight = choose_weights(pipeline, task, found, models, task.measure)
    means = {
        tried: task.measure(run(pipeline, task, found, models, [ALONE, tried])[0]).means["ndcg@10"]
        for tried in fusion.WEIGHTS
    }
    assert alone == ALONE
    assert len(set(means.values())) > 1
    assert weight == max(means, key=lambda tried: (round(means[tried], 12), -tried))


def test_a_pipeline_reads_as_the_option() -> None:
    stages = (Stage(100, "a", interpolated=False), Stage(10, "b", interpolated=True))
    assert str(Pipeline("bm25", stages)) == "bm25:100,a:10,+b"
