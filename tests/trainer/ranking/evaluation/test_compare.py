"""Parts of systems: re-ranked by a model's scores, or by these and those of the stage before; lists that are fused."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.evaluation import compare, fusion
from deepsiam.trainer.ranking.evaluation.compare import Parts
from deepsiam.trainer.ranking.evaluation.expression import BM25, Expression, Fuse, Fusion, Leaf, Rerank, walk
from deepsiam.trainer.ranking.evaluation.systems import WeightChoice
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked
from tests.trainer.ranking.retrieval.fakes import (
    assert_same,
    overlap_run,
    plain_overlap,
    positions,
    ranked_as,
    systems_of,
    tokens_run,
)

OVERLAP, TOKENS = Leaf("./overlap"), Leaf("./tokens")


@pytest.fixture(scope="module")
def task(toy_collection: str) -> Task:
    return Task.of(Collection.open(toy_collection), "test")


@pytest.fixture(scope="module")
def found(task: Task) -> list[Ranked]:
    return Bm25Ranker(task.collection).system(task).rank(30)


def parts_of(task: Task, *wanted: Expression, weight: float | None = None, depth: int = 30) -> Parts:
    """Parts of a BM25 and two models; everything is fused by one weight."""
    models = {"overlap": overlap_run(task.collection), "tokens": tokens_run(task.collection)}
    choices = {part: WeightChoice(weight) for each in wanted for part in walk(each)}
    return Parts(systems_of(task.collection, models, bm25=True), task, depth, wanted, choices)


def rerank(task: Task, found: list[Ranked], documents: int, weight: float | None = fusion.ONLY_SECOND) -> list[Ranked]:
    """Re-rank what BM25 is said to have found, at most 40 documents, with the `Overlap` model."""
    system = Rerank(BM25, documents, OVERLAP, None if weight == fusion.ONLY_SECOND else Fusion())
    parts = parts_of(task, system, weight=weight, depth=40)
    parts._ranked[BM25, 40] = found
    return parts.rank(system, 40)


def plain(task: Task, found: list[Ranked], documents: int, weight: float | None) -> list[list[int]]:
    """The rankings of a stage that re-ranks with the `Overlap` model."""
    rankings = []
    for query, ranked in zip(task.queries, found, strict=True):
        first, rest = ranked.documents[:documents].tolist(), ranked.documents[documents:].tolist()
        tokens = task.collection.queries.tokens(query)[:6].tolist()
        texts = [task.collection.corpus.tokens(task.pool[i])[:14].tolist() for i in first]
        new = np.array([plain_overlap(tokens, text) for text in texts], np.float64)
        old = ranked.scores[:documents].astype(np.float64)
        if not first:
            rankings.append(rest)
            continue
        if weight is None:
            ranks = [[1 / (60 + sum(other >= one for other in scores)) for one in scores] for scores in (old, new)]
            fused = np.add(*ranks)
        else:
            a, b = ((scores - scores.mean()) / scores.std() if scores.std() else 0 * scores for scores in (old, new))
            fused = (1 - weight) * a + weight * b
        fused = fused.astype(np.float32)
        rankings.append([first[i] for i in np.lexsort((first, -fused))] + rest)
    return rankings


@pytest.mark.parametrize("weight", [0.3, None, fusion.ONLY_SECOND])
def test_a_stage_ranks_the_first_by_its_or_both_scores(task: Task, found: list[Ranked], weight: float | None) -> None:
    found = [*found]
    found[3], found[4] = ranked_as([]), ranked_as(positions(found)[4][:2])  # BM25 may find nothing, or fewer
    assert max(map(len, positions(found))) > 12
    ranked = rerank(task, found, 12, weight)
    assert positions(ranked) == plain(task, found, 12, weight)
    assert sum(one != other for one, other in zip(positions(ranked), positions(found), strict=True)) > 10
    assert all((np.diff(row.scores) <= 0).all() for row in ranked)


def test_nothing_found_is_nothing_ranked_by_a_model_that_has_encoded_the_pool(task: Task) -> None:
    system = Rerank(BM25, 10**9, TOKENS)
    (first, *_) = parts_of(task, system, depth=10**9).rank(system, 10**9)
    assert len(first.documents) <= len(task.pool)  # no more are asked for than it has
    parts = parts_of(task, TOKENS, system, depth=40)
    parts._ranked[BM25, 10**9] = [ranked_as([])] * 20
    assert positions(parts.rank(system, 40)) == [[]] * 20


def test_each_stage_gets_the_scores_of_the_one_before(task: Task) -> None:
    first = Rerank(BM25, 20, TOKENS)
    system = Rerank(first, 7, OVERLAP, Fusion())
    parts = parts_of(task, system, weight=0.6)
    assert positions(parts.rank(system, 30)) == plain(task, parts.rank(first, 30), 7, 0.6)


def test_the_weight_is_the_smallest_with_the_best_ndcg(task: Task) -> None:
    system = Rerank(Rerank(BM25, 9, TOKENS), 9, OVERLAP, Fusion())
    means = {
        tried: task.measure(parts_of(task, system, weight=tried).rank(system, 30)).means["ndcg@10"]
        for tried in fusion.WEIGHTS
    }
    assert len(set(means.values())) > 1
    assert parts_of(task, system).best_weight(system) == max(means, key=lambda w: (round(means[w], 12), -w))


def test_a_weight_is_chosen_on_the_lists_that_are_fused_when_it_is_used(task: Task) -> None:
    system = Rerank(Fuse(BM25, Rerank(BM25, 5, TOKENS)), 5, OVERLAP, Fusion())
    parts = parts_of(task, system, weight=0.3)
    parts.best_weight(system)
    parts.rank(system, 30)
    assert {depth for part, depth in parts._ranked if part == system.first} == {30}


def test_what_a_part_ranks_does_not_depend_on_what_else_is_wanted(task: Task) -> None:
    lists = Fuse(BM25, Rerank(BM25, 5, OVERLAP))
    deeper = Rerank(lists, 40, TOKENS)
    alone = parts_of(task, lists, weight=0.4, depth=10).rank(lists, 10)
    beside = parts_of(task, lists, deeper, weight=0.4, depth=10)
    assert max(len(row.documents) for row in beside.rank(deeper, 40)) > 10
    assert_same(alone, beside.rank(lists, 10))


def test_documents_that_were_not_re_ranked_share_the_lowest_score_in_a_fusion(task: Task) -> None:
    again = Rerank(BM25, 5, OVERLAP)
    lists = Fuse(TOKENS, again)
    parts = parts_of(task, lists, again, weight=0.5)
    for fused, encoder, row in zip(*(parts.rank(part, 30) for part in (lists, TOKENS, again)), strict=True):
        lowest = row.scores[:5].min()
        scores = np.append(row.scores[:5], np.full(len(row.scores[5:]), lowest))
        named = Ranked(row.documents, scores)
        np.testing.assert_array_equal(fused.documents, fusion.fuse_lists(encoder, named, 0.5).documents[:30])


def test_what_is_encoded_is_freed_once_no_wanted_system_needs_it(task: Task) -> None:
    both, last = Fuse(BM25, TOKENS), Rerank(BM25, 5, TOKENS)
    wanted = [TOKENS, both, last, BM25]
    parts = parts_of(task, *wanted, weight=0.5)
    held = []
    for part in wanted:
        parts.rank(part, 30)
        parts.free(part)
        held.append(set(parts._encoded))
    assert held == [{TOKENS}, {BM25, TOKENS}, set(), set()]


def test_a_pool_is_encoded_once_for_two_sets_of_queries(task: Task) -> None:
    other = replace(task, queries=task.queries[:3], qrels=dict(list(task.qrels.items())[:3]))
    wanted = [TOKENS, BM25]
    first, second, alone = (parts_of(of, *wanted) for of in (task, other, other))
    second.beside = [first]
    for part in wanted:
        first.rank(part, 30)
        assert_same(second.rank(part, 30), alone.rank(part, 30))
    kept = {part: [parts._encoded[part] for parts in (first, second, alone)] for part in wanted}
    for part, name in ((TOKENS, "documents"), (BM25, "words")):
        own, shared, apart = (getattr(system, name) for system in kept[part])
        assert own is shared
        assert own is not apart
    third = parts_of(replace(task, pool=task.pool[:-1]), TOKENS)  # another pool is encoded by itself
    third.beside = [first]
    assert all(len(task.pool) - 1 not in ranked.documents for ranked in third.rank(TOKENS, 30))


def test_a_stage_after_a_shallower_one_adds_to_the_scores_that_a_fusion_reads(task: Task) -> None:
    first = Rerank(BM25, 3, OVERLAP)
    stage, lists = Rerank(first, 30, TOKENS, Fusion()), Fuse(first, TOKENS)
    staged = parts_of(task, stage, weight=0.5).rank(stage, 30)
    parts = parts_of(task, lists, weight=0.5)
    for row, found, scores in zip(
        staged, parts._list(first, 30), parts._encode(TOKENS).scores(slice(0, len(staged))), strict=True
    ):
        np.testing.assert_array_equal(found.scores[3:], found.scores[2])
        fused = fusion.fuse(found.scores, scores[found.documents], 0.5)
        np.testing.assert_allclose(row.scores, -np.sort(-fused), atol=1e-6)  # sums in another order


def test_the_seconds_of_a_part_leave_out_its_inner_parts(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(1)
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=clock.__next__))
    system = Rerank(BM25, 5, OVERLAP)
    parts = parts_of(task, system)
    parts.rank(system, 30)
    seconds = {stage.stage: stage.seconds for stage in parts.stages(system)}
    assert seconds.keys() == {"bm25", "> 5 ./overlap"}
    assert min(seconds.values()) > 0
    assert sum(seconds.values()) == next(clock) - 2  # from the first reading of the clock, 1, to the last
