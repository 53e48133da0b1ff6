"""Fused scores and rankings against plain sums, and the choice of the weight."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepsiam.trainer.ranking.evaluation import fusion
from deepsiam.trainer.ranking.evaluation.fusion import WEIGHTS, Fused, best_weight, fuse, fuse_lists, standardise
from deepsiam.trainer.ranking.retrieval.search import Ranked, best, row_blocks
from deepsiam.trainer.ranking.retrieval.system import ScoresAll
from tests.trainer.ranking.retrieval.fakes import positions


class Table:
    """A system with given scores; it records how many were requested at once."""

    def __init__(self, scores: Sequence[Sequence[float]] | np.ndarray):
        self.table = np.asarray(scores, np.float32)
        self.shape = self.table.shape
        self.asked: list[int] = []

    def scores(self, rows: slice) -> np.ndarray:
        self.asked.append(self.table[rows].size)
        return self.table[rows]


def plain_z(row: Sequence[float]) -> list[float]:
    deviation = pstdev(row)
    return [(score - fmean(row)) / deviation if deviation else 0.0 for score in row]


def plain_reciprocal(row: Sequence[float]) -> list[float]:
    return [1 / (60 + sum(other >= score for other in row)) for score in row]


def plain_order(scores: Sequence[float], k: int) -> list[int]:
    """A stable sort by descending score, in fp32."""
    return sorted(range(len(scores)), key=lambda i: -np.float32(scores[i]))[:k]


EIGHTHS = st.integers(-80, 80).map(lambda n: n / 8)  # few values, so that many are equal
PAIRS = hnp.arrays(np.float32, st.tuples(st.just(2), st.integers(1, 5), st.integers(1, 12)), elements=EIGHTHS)


@pytest.mark.parametrize("score", [0.1, -3e38, 1e-45])
def test_a_constant_row_gives_zeros_although_its_mean_is_rounded(score: float) -> None:
    np.testing.assert_array_equal(standardise(np.full(7, score, np.float32)), np.zeros(7))


def test_scores_that_tie_when_standardised_do_not_tie_at_the_ends() -> None:
    close, others = np.array([1e-30, 2e-30, 1.0], np.float32), np.array([2.0, 1.0, 0.0], np.float32)
    assert len(set(standardise(close))) == 2
    for scores in (fuse(close, others, 0), fuse(others, close, 1)):
        assert best(scores[None], 3).documents[0].tolist() == [2, 1, 0]


def rank(
    first: ScoresAll, second: ScoresAll, weights: Sequence[float | None], k: int, left_out: Any = None
) -> list[list[Ranked]]:
    """Rank by each weight, [weight][query], as an evaluation does: what is left out scores -inf, and is cut."""
    without = left_out or {}
    fused = Fused(first, second, without).rank(k, weights)
    return [
        [
            Ranked(*(array[~np.isin(row.documents, without.get(query, ()))] for array in row))
            for query, row in enumerate(rankings)
        ]
        for rankings in fused
    ]


@given(PAIRS, st.integers(1, 12), st.integers(1, 200))
def test_rankings_are_those_of_a_plain_sum(pair: np.ndarray, k: int, held: int) -> None:
    weights = [None, 0.0, 0.3, 1.0]
    tables = [Table(scores) for scores in pair]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "row_blocks", lambda shape: row_blocks(shape, held))
        ranked = rank(*tables, weights, k)
    for weight, rankings in zip(weights, ranked, strict=True):
        for a, b, ranking in zip(*pair.tolist(), positions(rankings), strict=True):
            left, right = (plain_reciprocal(row) if weight is None else plain_z(row) for row in (a, b))
            share = (1.0, 1.0) if weight is None else (1 - weight, weight)
            fused = [share[0] * x + share[1] * y for x, y in zip(left, right, strict=True)]
            expected = [fused[i] for i in plain_order(fused, k)]
            # compare scores, not documents: where two sums differ only by rounding, either order is right
            np.testing.assert_allclose([fused[i] for i in ranking], expected, atol=1e-6)
            assert len(set(ranking)) == len(ranking)
    queries, documents = pair.shape[1:]
    for table in tables:
        assert sum(table.asked) == queries * documents  # requested once for all weights
        assert max(table.asked) <= max(held, documents)


def left_out_of(queries: int, documents: int) -> st.SearchStrategy[dict[int, np.ndarray]]:
    some = st.sets(st.integers(0, documents - 1), min_size=1).map(lambda found: np.array(sorted(found)))
    return st.dictionaries(st.integers(0, queries - 1), some)


@given(PAIRS, st.sampled_from([None, 0.3, 1.0]), st.data())
def test_a_fusion_of_fusions_is_a_sum_of_sums(pair: np.ndarray, weight: float | None, data: st.DataObject) -> None:
    """Within a query, without the document that is left out."""
    _, queries, documents = pair.shape
    left_out = data.draw(left_out_of(queries, documents))
    inner = Fused(Table(pair[0]), Table(pair[1]), left_out, weight)
    outer = Fused(inner, Table(pair[1]), left_out, 0.4)
    assert outer.shape == (queries, documents)
    rows = slice(0, queries)
    (rankings,) = rank(inner, Table(pair[1]), [0.4], documents, left_out)
    for query, (scores, ranked) in enumerate(zip(outer.scores(rows), rankings, strict=True)):
        others = [i for i in range(documents) if i not in left_out.get(query, ())]
        a, b = (table[query, others] for table in pair)
        if others:
            expected = fuse(fuse(a, b, weight), b, 0.4)
            np.testing.assert_array_equal(scores[others], expected)
            assert ranked.documents.tolist() == [others[i] for i in plain_order(expected, documents)]
        assert np.isneginf(np.delete(scores, others)).all()


SOME = st.dictionaries(st.integers(0, 9), EIGHTHS, max_size=8)  # scores by document


@given(SOME, SOME, st.sampled_from([None, 0.0, 0.3, 1.0]))
def test_a_missing_one_scores_lowest(first: dict[int, float], second: dict[int, float], weight: float | None) -> None:
    every = sorted(first.keys() | second.keys())
    ranked = fuse_lists(*(as_ranked(scores) for scores in (first, second)), weight)
    assert sorted(ranked.documents.tolist()) == every
    if not every:
        return
    rows = []
    for scores in (first, second):
        lowest, highest = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
        rows.append([scores.get(i, lowest - (bool(scores) and lowest == highest)) for i in every])
    left, right = (plain_reciprocal(row) if weight is None else plain_z(row) for row in rows)
    share = (1.0, 1.0) if weight is None else (1 - weight, weight)
    fused = {i: share[0] * a + share[1] * b for i, a, b in zip(every, left, right, strict=True)}
    found = [fused[i] for i in ranked.documents.tolist()]
    np.testing.assert_allclose(found, sorted(fused.values(), reverse=True), atol=1e-6)
    if weight not in (0, 1):  # at the ends, scores are one list's own
        np.testing.assert_allclose(ranked.scores, found, atol=1e-6)


def test_the_only_document_of_a_list_counts_however_large_its_score() -> None:
    ranked = fuse_lists(as_ranked({7: -2e9}), as_ranked({3: 1.0, 5: 0.9, 7: 0.8, 9: -5.0}), 0.5)
    assert ranked.documents[0] == 7


def test_the_weight_is_the_smallest_of_the_best() -> None:
    assert best_weight([0.1, 0.2, 0.1, 0.2 + 1e-13, *[0.0] * (len(WEIGHTS) - 4)]) == WEIGHTS[1]


def as_ranked(scores: dict[int, float]) -> Ranked:
    """A list of these documents, best first."""
    order = sorted(scores, key=lambda i: (-scores[i], i))
    return Ranked(np.array(order, np.int64), np.array([scores[i] for i in order], np.float32))
