"""Encoding in any order and batch, exact search in any block, ties by corpus order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from data_prep.errors import InputError
from models.encoder import build_trunk
from models.siamese import Siamese
from models.task import Vocabulary
from tests import toy
from trainer.retrieval import best, encode_texts, search

VOCABULARY = Vocabulary(100, pad=0, unk=1, cls=2, sep=3, mask=4)
FEW_SCORES = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1e-45, 0.5, 0.5000001, 3e38, np.inf])


def reference(scores: np.ndarray, k: int) -> np.ndarray:
    """The plain way: a stable sort of the falling scores."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=30), elements=FEW_SCORES), st.data())
def test_best_is_the_stable_sort_however_the_columns_are_cut(scores: np.ndarray, data: st.DataObject) -> None:
    columns = scores.shape[1]
    k = data.draw(st.integers(1, columns + 3))
    cuts = data.draw(st.lists(st.integers(0, columns), max_size=5).map(sorted))
    ranking = best(np.split(scores, cuts, axis=1), k)
    expected = reference(scores, k)
    np.testing.assert_array_equal(ranking.documents, expected)
    np.testing.assert_array_equal(ranking.scores, np.take_along_axis(scores, expected, axis=1))


@given(
    hnp.arrays(np.float32, (5, 4), elements=st.integers(-2, 2)),
    hnp.arrays(np.float32, (40, 4), elements=st.integers(-2, 2)),
    st.integers(1, 50),
    st.integers(1, 50),
)
def test_search_equals_plain_sort_under_heavy_ties(queries: np.ndarray, corpus: np.ndarray, k: int, block: int) -> None:
    ranking = search(queries, corpus, k, corpus_block=block)
    np.testing.assert_array_equal(ranking.documents, reference(queries @ corpus.T, k))


@given(st.integers(0, 2**32 - 1), st.integers(1, 130))
def test_equal_documents_tie_wherever_they_stand_in_a_block(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((3, 33)).astype(np.float32)
    once = rng.standard_normal((25, 33)).astype(np.float32)
    corpus = np.tile(once, (5, 1))  # document i, i + 25, ... are equal
    ranking = search(queries, corpus, 125, corpus_block=block)
    by_document = ranking.documents.reshape(3, 25, 5)
    np.testing.assert_array_equal(by_document, by_document[:, :, :1] + 25 * np.arange(5))
    np.testing.assert_array_equal(ranking.documents, search(queries, corpus, 125).documents)


def test_search_takes_more_queries_than_a_block() -> None:
    corpus = np.eye(7, dtype=np.float32)
    ranking = search(np.tile(corpus, (300, 1)), corpus, 1)
    np.testing.assert_array_equal(ranking.documents[:, 0], np.tile(np.arange(7), 300))
    assert ranking.scores.dtype == np.float32


def test_nan_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        best([np.array([[1.0, np.nan]], np.float32)], 1)


class Spy:
    """Encodes a text as (its length, the sum of its ids, its first id) and notes the batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        self.batches.append(tuple(input_ids.shape))
        assert bool((input_ids[~attention_mask] == VOCABULARY.pad).all())
        ids = input_ids * attention_mask
        return torch.stack([attention_mask.sum(1), ids.sum(1), ids[:, 0]], dim=1).float()


TEXTS = st.lists(hnp.arrays(np.uint16, st.integers(0, 30), elements=st.integers(5, 99)), min_size=1, max_size=40)


@given(TEXTS, st.integers(3, 40), st.integers(1, 200))
def test_encoding_keeps_the_order_and_the_budget(texts: list[np.ndarray], max_tokens: int, budget: int) -> None:
    spy = Spy()
    embeddings = encode_texts(spy, texts, VOCABULARY, max_tokens, batch_tokens=budget)
    cut = [text[: max_tokens - 2].astype(int) for text in texts]
    frame = VOCABULARY.cls + VOCABULARY.sep
    expected = [[len(text) + 2, text.sum() + frame, VOCABULARY.cls] for text in cut]
    np.testing.assert_array_equal(embeddings, np.array(expected, np.float32))
    assert embeddings.dtype == np.float32
    different = {text.tobytes() for text in cut}
    assert sum(rows for rows, _ in spy.batches) == len(different)  # equal texts are encoded once
    for rows, width in spy.batches:
        assert width <= max_tokens
        assert rows == 1 or rows * (width - 7) <= budget  # widths are rounded up to a multiple of 8


def test_a_real_encoder_gives_the_same_embeddings_in_any_batch() -> None:
    torch.manual_seed(0)
    trunk = build_trunk({**toy.TRUNK, "vocab_size": 100, "pad_token_id": 0})
    model = Siamese(trunk, pooling="mean", similarity="cosine").eval()
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, 100, rng.integers(0, 50)).astype(np.uint16) for _ in range(20)]
    together = encode_texts(model, texts, VOCABULARY, 32)
    alone = np.concatenate([encode_texts(model, [text], VOCABULARY, 32, batch_tokens=1) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_embeddings_that_are_not_finite_are_refused() -> None:
    class Broken:
        def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return torch.full((len(input_ids), 2), torch.nan)

    with pytest.raises(InputError, match="encode documents: .*not finite"):
        encode_texts(Broken(), [np.array([5, 6])], VOCABULARY, 8, what="encode documents")
