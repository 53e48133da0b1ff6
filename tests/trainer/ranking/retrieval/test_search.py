"""Exact search in blocks of any size; ties are broken by corpus order."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.retrieval import search as search_module
from deepsiam.trainer.ranking.retrieval.search import Ranking, best, salts_of, search

FEW_SCORES = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1e-45, 0.5, 0.5000001, 3e38])


def reference(scores: np.ndarray, k: int) -> np.ndarray:
    """A stable sort by descending score."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=30), elements=FEW_SCORES),
    st.integers(1, 33),
)
def test_best_is_the_stable_sort(scores: np.ndarray, k: int) -> None:
    ranking = best(scores, k)
    expected = reference(scores, k)
    np.testing.assert_array_equal(ranking.documents, expected)
    np.testing.assert_array_equal(ranking.scores, np.take_along_axis(scores, expected, axis=1))


@given(
    hnp.arrays(np.float32, (5, 4), elements=st.integers(-2, 2)),
    hnp.arrays(np.float32, (40, 4), elements=st.integers(-2, 2)),
    st.integers(1, 50),
    st.integers(1, 6),
    st.integers(1, 50),
)
def test_heavy_ties_are_stable(
    queries: np.ndarray, corpus: np.ndarray, k: int, query_block: int, corpus_block: int
) -> None:
    expected = reference(queries @ corpus.T, k)
    for device in (None, torch.device("cpu")):
        ranking = search(queries, corpus, k, device=device, query_block=query_block, corpus_block=corpus_block)
        np.testing.assert_array_equal(ranking.documents, expected)
        np.testing.assert_array_equal(ranking.scores, np.take_along_axis(queries @ corpus.T, expected, axis=1))


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 130))
def test_equal_documents_tie_wherever_they_are_in_a_block(seed: int, query_block: int, corpus_block: int) -> None:
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((3, 33)).astype(np.float32)
    once = rng.standard_normal((25, 33)).astype(np.float32)
    corpus = np.tile(once, (5, 1))  # document i, i + 25, ... are equal
    ranking = search(queries, corpus, 125, query_block=query_block, corpus_block=corpus_block)
    by_document = ranking.documents.reshape(3, 25, 5)
    np.testing.assert_array_equal(by_document, by_document[:, :, :1] + 25 * np.arange(5))
    unblocked = search(queries, corpus, 125)
    np.testing.assert_array_equal(ranking.documents, unblocked.documents)
    np.testing.assert_array_equal(ranking.scores, unblocked.scores)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 70), st.sampled_from([np.float32, np.float16]))
def test_scores_too_near_for_fp32_are_told_apart(seed: int, k: int, corpus_block: int, dtype: type) -> None:
    """Large terms cancel out: no bit of an fp32 sum is right, but sums of whole numbers are exact in fp64."""
    rng = np.random.default_rng(seed)
    of_queries, large = rng.integers(-4096, 4097, (7, 40)), rng.integers(-2000, 2001, (65, 40))
    queries = np.concatenate([of_queries, of_queries, np.ones((7, 1))], axis=1).astype(np.float32)
    corpus = np.concatenate([large, -large, rng.integers(-9, 10, (65, 1))], axis=1).astype(dtype)
    exact = (queries.astype(np.float64) @ corpus.astype(np.float64).T).astype(np.float32)
    expected = reference(exact, k)
    for device in (None, torch.device("cpu")):
        ranking = search(queries, corpus, k, device=device, query_block=3, corpus_block=corpus_block)
        np.testing.assert_array_equal(ranking.documents, expected)
        np.testing.assert_array_equal(ranking.scores, np.take_along_axis(exact, expected, axis=1))


def rounded(scores: np.ndarray) -> np.ndarray:
    """Scores with 12 significant bits, by their binary exponent."""
    fractions, exponents = np.frexp(scores.astype(np.float64))
    rounded: np.ndarray = np.ldexp(np.trunc(fractions * 2**12 + np.copysign(0.5, fractions)) / 2**12, exponents)
    return rounded.astype(np.float32)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 70), st.sampled_from([0.0, 0.9, 0.9999, -0.999]))
def test_salted_rankings_are_those_of_rounded_scores(seed: int, k: int, corpus_block: int, common: float) -> None:
    """`common` is how similar all texts are: with 0.9999 most scores tie, and each query has its own order of ties."""
    rng = np.random.default_rng(seed)
    vectors = (rng.standard_normal((72, 24)) * np.sqrt((1 - common**2) / 24)).astype(np.float32)
    vectors[:, 0] += abs(common)
    vectors[:7] *= np.copysign(1, common).astype(np.float32)
    queries, corpus = vectors[:7], vectors[7:]
    salts = salts_of(np.arange(100, 107))
    ranking = search(queries, corpus, k, salts=salts, query_block=3, corpus_block=corpus_block)
    exact = (queries.astype(np.float64) @ corpus.astype(np.float64).T).astype(np.float32)
    ties = [[(i * 0x9E3779B1 + int(salt)) % 2**32 for i in range(65)] for salt in salts]
    expected = np.stack([np.lexsort((of_query, -row)) for of_query, row in zip(ties, rounded(exact), strict=True)])
    np.testing.assert_array_equal(ranking.documents, expected[:, :k])
    np.testing.assert_array_equal(ranking.scores, np.take_along_axis(rounded(exact), expected[:, :k], axis=1))
    in_memory = best(exact, k, salts)
    np.testing.assert_array_equal(in_memory.documents, ranking.documents)


def test_what_a_model_does_not_tell_apart_is_taken_at_random() -> None:
    """All documents tie: each is found about equally often, and by other queries than its neighbour."""
    queries, corpus = np.ones((400, 2), np.float32), np.ones((100, 2), np.float32)
    found = search(queries, corpus, 10, salts=salts_of(np.arange(400))).documents
    counts = np.bincount(found.ravel(), minlength=100)
    assert (counts.min() > 20) & (counts.max() < 60)  # 40 each
    assert len({tuple(sorted(row)) for row in found.tolist()}) > 50


def test_rounding_noise_does_not_change_what_is_found() -> None:
    """The noise is what one step of training on other ranks leaves in the scores of a model without differences."""
    rng = np.random.default_rng(0)
    exact = (32.0788 + 1.35e-4 * rng.standard_normal((150, 200))).astype(np.float32)
    noisy = (exact + 2e-6 * rng.standard_normal(exact.shape)).astype(np.float32)
    salts = salts_of(np.arange(150))

    def other_lists(first: Ranking, second: Ranking) -> float:
        pairs = zip(first.documents.tolist(), second.documents.tolist(), strict=True)
        return float(np.mean([set(a) != set(b) for a, b in pairs]))

    assert other_lists(best(exact, 20), best(noisy, 20)) > 0.1
    assert other_lists(best(exact, 20, salts), best(noisy, 20, salts)) == 0


def test_only_a_few_documents_are_scored_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scored, pairs = list[int](), search_module._pair_products
    monkeypatch.setattr(
        search_module, "_pair_products", lambda *given: (scored.append(len(given[2])), pairs(*given))[1]
    )
    rng = np.random.default_rng(0)
    queries, corpus = (rng.standard_normal((rows, 64)).astype(np.float32) for rows in (10, 20_000))
    search(queries, corpus, 10, corpus_block=2_000)
    assert 10 * 10 <= sum(scored) < 10 * 10 * 6  # k at first, then about k / i in the i-th block


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_vectors_beyond_fp32_are_refused(value: float) -> None:
    corpus = np.eye(60, dtype=np.float32)
    corpus[7, 2] = value
    queries = np.full((2, 60), 2, np.float32)
    with pytest.raises(InputError, match="a score is not a number"):
        search(queries, corpus, 3, corpus_block=20)
    if not np.isfinite(value):
        with pytest.raises(InputError, match="a score is not a number: the model's weights or the index are damaged"):
            best(np.array([[1.0, value]], np.float32), 1)


def test_every_document_is_read_once_for_all_queries() -> None:
    rows, read = np.eye(50, dtype=np.float32), list[int]()

    class Corpus:
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, part: slice) -> np.ndarray:
            read.extend(range(len(rows))[part])
            return rows[part]

    ranking = search(rows[:10], Corpus(), 1, query_block=3, corpus_block=7)  # type: ignore[arg-type]
    assert ranking.documents[:, 0].tolist() == list(range(10))
    assert read == list(range(50))


def test_memory_does_not_grow_with_a_block_of_scores_for_every_query() -> None:
    rng = np.random.default_rng(0)
    queries, corpus = (rng.standard_normal((rows, 4)).astype(np.float32) for rows in (64 * 8, 4096 * 2))
    block_of_scores = 64 * 4096 * 8  # bytes in fp64

    def peak(some_queries: np.ndarray) -> int:
        tracemalloc.start()
        search(some_queries, corpus, 10, query_block=64, corpus_block=4096)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(queries) - peak(queries[:64]) < block_of_scores
