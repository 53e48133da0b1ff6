"""Sparse retrieval: against a dense product, whatever the blocks; ties, salts, matches, texts without a weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.vectors import one_vector
from deepsiam.trainer.ranking.retrieval import sparse
from deepsiam.trainer.ranking.retrieval.encode import TextVectors, require_finite
from deepsiam.trainer.ranking.retrieval.search import Ranked, best, salts_of
from deepsiam.trainer.ranking.retrieval.sparse import Postings, SparseSystem, terms_of
from tests.trainer.ranking.retrieval.fakes import assert_same


def texts(weights: np.ndarray) -> TextVectors:
    """The texts with these weights, [N, V]."""
    flat, counts = terms_of(one_vector(torch.from_numpy(weights.astype(np.float32))))
    return TextVectors(flat, counts.cumsum(), np.arange(len(weights)))


def plain(scores: np.ndarray, k: int, salts: np.ndarray | None = None) -> list[Ranked]:
    """The k best columns of each row that are above 0."""
    ranked = best(scores.astype(np.float32), scores.shape[1], salts).each()
    return [Ranked(documents[of > 0][:k], of[of > 0][:k]) for documents, of in ranked]


@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 12)),
    share=st.floats(0, 1),
    levels=st.integers(1, 50),
    k=st.integers(1, 50),
    block=st.integers(1, 50),
    salted=st.booleans(),
)
def test_a_ranking_is_that_of_a_dense_product(
    seed: int, shape: tuple[int, int, int], share: float, levels: int, k: int, block: int, salted: bool
) -> None:
    queries, documents, terms = shape
    rng = np.random.default_rng(seed)
    # sixteenths: products and sums are exact, and with few levels there are many ties
    weights = rng.integers(1, levels + 1, (queries + documents, terms)) / 16 * (rng.random((1, terms)) < share)
    weights *= rng.random(weights.shape) < 0.7
    system = SparseSystem(texts(weights[:queries]), texts(weights[queries:]))
    salts = salts_of(range(queries)) if salted else None
    expected = weights[:queries] @ weights[queries:].T
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sparse, "BLOCK", block)
        assert system.shape == expected.shape
        assert_same(system.rank(k, salts), plain(expected, k, salts))
        assert system.scores(slice(0, queries)).tolist() == expected.tolist()
        some = rng.permutation(documents)[: 1 + documents // 2]
        for query in range(queries):
            assert system.of(query, some).tolist() == expected[query, some].tolist()


@given(seed=st.integers(0, 2**32), block=st.integers(1, 300))
def test_scores_of_any_weights_are_the_dense_products_and_do_not_depend_on_the_blocks(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    weights = (rng.exponential(1, (210, 64)) * (rng.random((210, 64)) < 0.2)).astype(np.float32)
    system = SparseSystem(texts(weights[:10]), texts(weights[10:]))
    whole = system.rank(20)
    exact = weights[:10].astype(np.float64) @ weights[10:].astype(np.float64).T
    np.testing.assert_allclose(system.scores(slice(0, 10)), exact, rtol=1e-6)
    for row, ranked in zip(exact, whole, strict=True):
        np.testing.assert_allclose(np.sort(row)[::-1][: len(ranked.scores)], ranked.scores, rtol=1e-6)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sparse, "BLOCK", block)
        assert_same(SparseSystem(system.queries, system.documents).rank(20), whole)


def test_equal_texts_are_held_once_and_tie_in_order() -> None:
    weights = np.array([[0.1, 0.7, 0.0], [0.3, 0.0, 0.3]])
    documents = texts(weights)._replace(rows=np.array([1, 0, 1, 0]))
    (ranked,) = SparseSystem(texts(np.array([[0.3, 0.1, 0.2]])), documents).rank(10)
    assert ranked.documents.tolist() == [0, 2, 1, 3]
    assert len(set(ranked.scores.tolist())) == 2


def test_a_query_without_a_weight_finds_nothing_and_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    system = SparseSystem(texts(np.array([[0.0, 0.0], [0.0, 1.0]])), texts(np.eye(2)))
    assert [ranked.documents.tolist() for ranked in system.rank(5)] == [[], [1]]
    assert "1 of 2 queries have no term with a weight" in capsys.readouterr().err


def test_postings_give_back_the_terms_of_each_text_and_the_matches_add_up_to_the_score() -> None:
    rng = np.random.default_rng(0)
    weights = (rng.random((30, 20)) * (rng.random((30, 20)) < 0.3)).astype(np.float32)
    weights[7] = 0
    kept = texts(weights)
    block = Postings.of(kept.flat, kept.counts(kept.rows))  # type: ignore[arg-type]
    for number, terms in enumerate(block.by_text()):
        assert terms.tolist() == kept.of(number).tolist()
        assert terms["term"].tolist() == np.flatnonzero(weights[number]).tolist()
    query = kept.of(0)
    scores = block.scores(query)
    for number in range(30):
        matches = block.matches(query, number)
        assert {match.term for match in matches} == set(np.flatnonzero(weights[0] * weights[number]).tolist())
        assert sum(match.weight for match in matches) == pytest.approx(scores[number])
        assert [match.weight for match in matches] == sorted((match.weight for match in matches), reverse=True)
    assert block.products(query) == (weights[:, weights[0] > 0] > 0).sum()


def test_a_list_of_more_texts_than_a_block_has_its_own_scores() -> None:
    weights = np.zeros((70_000, 2), np.float32)
    weights[:, 0] = np.arange(1, 70_001)
    system = SparseSystem(texts(np.ones((1, 2), np.float32)), texts(weights))
    places = np.arange(70_000)
    np.testing.assert_array_equal(system.of(0, places), weights[:, 0])


def test_a_weight_that_is_not_a_number_is_refused() -> None:
    flat, counts = terms_of(one_vector(torch.tensor([[0.0, torch.nan, 1.0], [0.0, 0.0, 0.0]])))
    assert counts.tolist() == [2, 0]
    with pytest.raises(InputError, match="encode: the model's embeddings are not finite"):
        require_finite(flat, "encode")
    block = Postings.of(*terms_of(one_vector(torch.ones(3, 2))))
    block.weights[1] = np.nan
    with pytest.raises(InputError, match="a score is not a number: the model's weights or the index are damaged"):
        sparse.search_postings([terms_of(one_vector(torch.ones(1, 2)))[0]], [(0, block)], 3)
