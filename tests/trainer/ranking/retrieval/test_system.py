"""Score rows with one vector per text and with several, against a search and a plain loop."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.retrieval import search as search_module
from deepsiam.trainer.ranking.retrieval import system
from deepsiam.trainer.ranking.retrieval.encode import TextVectors
from deepsiam.trainer.ranking.retrieval.search import search
from deepsiam.trainer.ranking.retrieval.system import Embedded, Scored
from tests.trainer.ranking.retrieval.fakes import positions


def test_an_encoders_scores_are_those_of_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    queries, documents = (rng.standard_normal((rows, 33)).astype(np.float32) for rows in (9, 130))
    ranking = search(queries, documents, 130)
    monkeypatch.setattr(system, "CORPUS_BLOCK", 50)
    embedded = Embedded(queries, documents)
    scores = embedded.scores(slice(2, 9))
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(np.take_along_axis(scores, ranking.documents[2:], axis=1), ranking.scores[2:])
    np.testing.assert_array_equal(embedded.of(4, np.array([7, 0, 129])), scores[2, [7, 0, 129]])
    assert positions(embedded.rank(5)) == ranking.documents[:, :5].tolist()
    assert embedded.shape == (9, 130)


class MaxSim:
    """Sums, over the query's vectors, the best product with a document vector; records the sizes compared at once."""

    def __init__(self) -> None:
        self.blocks: list[tuple[torch.Size, torch.Size]] = []

    def __call__(self, queries: Vectors, documents: Vectors) -> torch.Tensor:
        self.blocks.append((queries.mask.shape, documents.mask.shape))
        products = torch.einsum("qmh,dkh->qdmk", queries.vectors, documents.vectors)
        best = products.masked_fill(~documents.mask[None, :, None], -torch.inf).amax(dim=3)
        return (best * queries.mask[:, None]).sum(dim=2)


def texts(counts: list[int], rows: list[int], seed: int) -> TextVectors:
    """Distinct texts with `counts` vectors each; `rows` tells which distinct text each text is."""
    flat = np.random.default_rng(seed).standard_normal((sum(counts), 16)).astype(np.float32)
    return TextVectors(flat, np.cumsum(counts), np.array(rows))


def plain_scores(queries: TextVectors, documents: TextVectors) -> np.ndarray:
    def each(encoded: TextVectors) -> list[np.ndarray]:
        different = np.split(encoded.flat.astype(np.float64), encoded.ends[:-1])
        return [different[row] for row in encoded.rows]

    return np.array([[(q @ d.T).max(axis=1).sum() for d in each(documents)] for q in each(queries)])


QUERIES = texts([3, 1, 2, 1], [1, 0, 3, 2, 0], seed=0)
DOCUMENTS = texts([7, 4, 4, 2, 1, 1], [5, 0, 1, 2, 2, 3, 4, 0, 5, 2], seed=1)


@pytest.mark.parametrize(("query_vectors", "document_vectors"), [(1, 16384), (5, 9), (2048, 1)])
def test_scores_are_those_of_a_loop_in_any_block(
    query_vectors: int, document_vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "QUERY_VECTORS", query_vectors)
    monkeypatch.setattr(system, "DOCUMENT_VECTORS", document_vectors)
    score, expected = MaxSim(), plain_scores(QUERIES, DOCUMENTS)
    scored = Scored(score, QUERIES, DOCUMENTS)
    assert scored.shape == (5, 10)
    scores = scored.scores(slice(1, 5))
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected[1:], rtol=1e-5)
    for rows, columns in score.blocks:
        assert rows.numel() <= query_vectors or rows[0] == 1
        assert columns.numel() <= document_vectors or columns[0] == 1
    for first, copy in ((0, 8), (1, 7), (3, 4), (3, 9)):  # equal texts
        np.testing.assert_array_equal(scores[:, first], scores[:, copy])
    some = np.array([9, 0, 3, 8])
    of_some = scored.of(3, some)
    np.testing.assert_allclose(of_some, expected[3, some], rtol=1e-5)
    assert of_some[0] == of_some[2]
    assert of_some[1] == of_some[3]


@pytest.mark.parametrize("held", [1, 20, 2**27])
def test_rankings_are_those_of_the_scores(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "row_blocks", lambda shape: search_module.row_blocks(shape, held))
    expected = plain_scores(QUERIES, DOCUMENTS).astype(np.float32)  # equal texts rank in the pool's order
    order = np.argsort(-expected, axis=1, kind="stable")
    ranked = Scored(MaxSim(), QUERIES, DOCUMENTS).rank(7)
    assert positions(ranked) == order[:, :7].tolist()
    best = np.take_along_axis(expected, order[:, :7], axis=1)
    np.testing.assert_allclose([row.scores for row in ranked], best, rtol=1e-5)


def test_every_different_document_is_padded_once_for_a_block_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "QUERY_VECTORS", 1)
    monkeypatch.setattr(system, "DOCUMENT_VECTORS", 4)
    with patch.object(TextVectors, "padded", autospec=True, side_effect=TextVectors.padded) as padded:
        Scored(MaxSim(), QUERIES, DOCUMENTS).scores(slice(0, 5))
    numbers = [number for call in padded.call_args_list for number in call.args[1].tolist()]
    assert sorted(numbers) == sorted([*QUERIES.rows.tolist(), *range(6)])


@given(hnp.arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 9)), st.integers(1, 30))
def test_blocks_have_every_text_once_and_few_vectors(counts: np.ndarray, most: int) -> None:
    blocks = list(system._blocks(counts, most))
    assert [i for block in blocks for i in range(block.start, block.stop)] == list(range(len(counts)))
    for block in blocks:
        size = block.stop - block.start
        assert size == 1 or size * counts[block].max() <= most
        if block.stop < len(counts):  # no block is smaller than necessary
            assert (size + 1) * counts[block.start : block.stop + 1].max() > most
