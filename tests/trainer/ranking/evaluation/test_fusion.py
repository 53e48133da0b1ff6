"""Fused scores and rankings against plain sums, and the choice of the weight."""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepsiam.trainer.ranking.evaluation import fusion
from deepsiam.trainer.ranking.evaluation.fusion import (
    WEIGHTS,
    Fused,
    best_weight,
    fuse,
    fuse_lists,
    reciprocal_ranks,
    standardise,
)
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
ROWS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=EIGHTHS)
ANY_ROWS = hnp.arrays(
    np.float32,
    st.tuples(st.just(2), st.integers(1, 5), st.integers(1, 12)),
    elements=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False),
)
PAIRS = hnp.arrays(np.float32, st.tuples(st.just(2), st.integers(1, 5), st.integers(1, 12)), elements=EIGHTHS)


@given(ROWS)
def test_standardised_rows(scores: np.ndarray) -> None:
    for row in scores:
        np.testing.assert_allclose(standardise(row), plain_z(row.tolist()), atol=1e-9)


@pytest.mark.parametrize("score", [0.1, -3e38, 1e-45])
def test_a_constant_row_gives_zeros_although_its_mean_is_rounded(score: float) -> None:
    np.testing.assert_array_equal(standardise(np.full(7, score, np.float32)), np.zeros(7))


@given(ROWS)
def test_reciprocal_ranks_of_rows(scores: np.ndarray) -> None:
    for row in scores:
        np.testing.assert_allclose(reciprocal_ranks(row), plain_reciprocal(row.tolist()))


def order(scores: np.ndarray) -> list[int]:
    """All documents by their scores fp32 [N], as a system ranks them."""
    ranked: list[int] = best(scores[None], len(scores)).documents[0].tolist()
    return ranked


@given(ANY_ROWS)
def test_at_the_ends_the_ranking_is_that_of_one_system(pair: np.ndarray) -> None:
    for first, second in zip(*pair, strict=True):
        assert order(fuse(first, second, 0.0)) == order(first)
        assert order(fuse(first, second, 1.0)) == order(second)


def test_scores_that_tie_when_standardised_do_not_tie_at_the_ends() -> None:
    close = np.array([1e-30, 2e-30, 1.0], np.float32)
    assert len(set(standardise(close))) == 2
    assert order(fuse(close, close, 0)) == [2, 1, 0]


@given(PAIRS, st.sampled_from([w for w in WEIGHTS if 0 < w < 1]), st.integers(1, 99), st.integers(-99, 99))
def test_an_affine_map_of_one_systems_scores_changes_nothing(
    pair: np.ndarray, weight: float, scale: int, shift: int
) -> None:
    for first, second in zip(*pair, strict=True):
        mapped = scale * second + np.float32(shift)  # exact in fp32: small integers and eighths
        np.testing.assert_allclose(fuse(first, mapped, weight), fuse(first, second, weight), atol=1e-5)
        np.testing.assert_array_equal(fuse(first, mapped, None), fuse(first, second, None))
        # by 8: no rounding at all
        np.testing.assert_array_equal(fuse(first, 8 * second, weight), fuse(first, second, weight))


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


@given(PAIRS, st.integers(1, 12), st.data())
def test_a_document_that_is_left_out_has_no_influence(pair: np.ndarray, k: int, data: st.DataObject) -> None:
    _, queries, documents = pair.shape
    left_out = data.draw(left_out_of(queries, documents))
    ranked = rank(Table(pair[0]), Table(pair[1]), [None, 0.3], k, left_out)
    for weight, rankings in zip([None, 0.3], ranked, strict=True):
        for query, found in enumerate(rankings):
            others = [i for i in range(documents) if i not in left_out.get(query, ())]
            if not others:
                assert not len(found.documents)
                continue
            first, second = (Table(table[query : query + 1, others]) for table in pair)
            ((expected,),) = rank(first, second, [weight], k)
            assert found.documents.tolist() == [others[i] for i in expected.documents]
            np.testing.assert_array_equal(found.scores, expected.scores)


@given(PAIRS, st.sampled_from([None, 0.3, 1.0]), st.data())
def test_a_fusion_of_a_fusion_is_a_plain_sum_of_sums(
    pair: np.ndarray, weight: float | None, data: st.DataObject
) -> None:
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
def test_a_document_that_a_list_lacks_has_its_lowest_score(
    first: dict[int, float], second: dict[int, float], weight: float | None
) -> None:
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


@pytest.mark.parametrize("weight", [None, 0.5, 1.0])
@pytest.mark.parametrize("score", [0.0, 3.0, -2e9])
def test_the_only_document_of_a_list_counts(weight: float | None, score: float) -> None:
    ranked = fuse_lists(as_ranked({7: score}), as_ranked({3: 1.0, 5: 0.9, 7: 0.8, 9: -5.0}), weight)
    if weight == 1:
        assert ranked.documents.tolist() == [3, 5, 7, 9]
    else:
        assert ranked.documents[0] == 7


def as_ranked(scores: dict[int, float]) -> Ranked:
    """A list of these documents, best first."""
    order = sorted(scores, key=lambda i: (-scores[i], i))
    return Ranked(np.array(order, np.int64), np.array([scores[i] for i in order], np.float32))


def test_lists_of_the_same_documents_are_fused_as_systems_are() -> None:
    pair = np.random.default_rng(0).standard_normal((2, 1, 9)).astype(np.float32)
    lists = [as_ranked(dict(enumerate(row[0].tolist()))) for row in pair]
    for weight in (None, 0.3):
        ((whole,),) = rank(Table(pair[0]), Table(pair[1]), [weight], 9)
        fused = fuse_lists(*lists, weight)
        np.testing.assert_array_equal(fused.documents, whole.documents)
        np.testing.assert_array_equal(fused.scores, whole.scores)


def test_equal_fused_scores_rank_in_the_pools_order() -> None:
    first, second = Table([[1, 2, 2, 0, 1]]), Table([[5, 5, 5, 5, 5]])
    assert [positions(ranked) for ranked in rank(first, second, [0.5, None], 4)] == [[[1, 2, 0, 4]]] * 2


def choose_weight(first: Table, second: Table) -> float:
    """The weight with the best mean nDCG, if document 0 is the only relevant document of every query."""
    ranks = [[row.index(0) for row in positions(ranked)] for ranked in rank(first, second, WEIGHTS, 10)]
    return best_weight([fmean(1 / math.log2(2 + rank) for rank in of_weight) for of_weight in ranks])


def test_the_weight_is_the_smallest_of_the_best() -> None:
    right, wrong = [[2.0, 1.0, 0.0]] * 3, [[0.0, 1.0, 2.0]] * 3
    assert choose_weight(Table(right), Table(right)) == 0
    # at 0.5 the standardised scores cancel: all documents tie, and document 0 comes first
    assert choose_weight(Table(wrong), Table(right)) == 0.5
    assert choose_weight(Table(right), Table(wrong)) == 0
