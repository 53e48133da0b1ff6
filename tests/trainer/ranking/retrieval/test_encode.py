"""Texts are encoded in any order and batch, within the token budget, by the model's own embedding."""

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.framing import ChunkFraming, Framing
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.matching.siamese import Siamese, SiameseConfig
from deepsiam.models.vectors import Vectors, one_vector
from deepsiam.trainer.ranking.retrieval.encode import BATCH_TOKENS, TextEncoder, TextVectors, length_batches
from tests import toy

VOCABULARY = Vocabulary(100, pad=0, unk=1, cls=2, sep=3, mask=4)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 300))
def test_batches_have_every_row_once_and_similar_lengths(lengths: list[int], budget: int) -> None:
    batches = list(length_batches(lengths, budget))
    rows = [row for batch in batches for row in batch]
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        longest = lengths[batch[0]]
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert following is None or (len(batch) + 1) * longest > budget  # no batch is smaller than necessary


def test_a_real_encoder_gives_the_same_embeddings_in_any_batch() -> None:
    torch.manual_seed(0)
    trunk = build_trunk({**toy.TRUNK, "vocab_size": 100, "pad_token_id": 0})
    embed = Siamese(trunk, SiameseConfig(name="siamese", pooling="mean", similarity="cosine")).eval().embed_queries
    framing = Framing(VOCABULARY, 32)
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, 100, rng.integers(0, 50)).astype(np.uint16) for _ in range(20)]
    with patch.dict(BATCH_TOKENS, cpu=100):
        together = TextEncoder(embed, framing).embeddings(texts)
    alone = np.concatenate([TextEncoder(embed, framing).embeddings([text]) for text in texts])
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


FEW = st.lists(hnp.arrays(np.uint16, st.integers(0, 12), elements=st.integers(5, 9)), min_size=1, max_size=30)


class Odd:
    """Embeds a text as a vector (id, position) for each odd token id; records the shapes of batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, ...]] = []

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> Vectors:
        self.batches.append(tuple(ids.shape))
        assert bool((ids[~mask] == VOCABULARY.pad).all())
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        return Vectors(torch.stack([ids, positions], dim=2).float(), mask & (ids % 2 == 1))


def plain(text: np.ndarray, max_tokens: int) -> np.ndarray:
    ids = [VOCABULARY.cls, *text[: max_tokens - 2].tolist(), VOCABULARY.sep]
    return np.array([(token, i) for i, token in enumerate(ids) if token % 2], np.float32)


def vectors_of(encoded: TextVectors, text: int) -> np.ndarray:
    vectors, mask = encoded.padded(encoded.rows[text : text + 1])
    return vectors[0][mask[0]].numpy()


@given(FEW, st.integers(3, 20), st.integers(1, 100))
def test_every_text_has_its_own_vectors(texts: list[np.ndarray], max_tokens: int, budget: int) -> None:
    odd = Odd()
    with patch.dict(BATCH_TOKENS, cpu=budget):
        encoded = TextEncoder(odd, Framing(VOCABULARY, max_tokens)).vectors(texts)
    for i, text in enumerate(texts):
        np.testing.assert_array_equal(vectors_of(encoded, i), plain(text, max_tokens))
    different = {text[: max_tokens - 2].tobytes() for text in texts}
    assert sum(rows for rows, _ in odd.batches) == len(different) == len(encoded.ends)  # equal texts are encoded once
    for rows, width in odd.batches:
        assert width <= max_tokens
        assert rows == 1 or rows * (width - 7) <= budget  # widths are rounded up to a multiple of 8
    assert len(encoded.flat) == sum(len(plain(np.frombuffer(key, np.uint16), max_tokens)) for key in different)
    assert encoded.flat.dtype == np.float32
    counts = encoded.counts(np.arange(len(different)))
    together = encoded.padded(np.arange(len(different)))
    np.testing.assert_array_equal(together.mask.sum(dim=1), counts)
    assert together.vectors.shape == (len(different), max(counts), 2)
    assert not together.vectors[~together.mask].any()


def test_different_texts_are_numbered_from_the_longest() -> None:
    texts = [np.full(n, 5, np.uint16) for n in (1, 7, 3, 7)]
    encoded = TextEncoder(Odd(), Framing(VOCABULARY, 20)).vectors(texts)
    assert encoded.rows.tolist() == [2, 0, 1, 0]
    assert encoded.counts(np.arange(3)).tolist() == [8, 4, 2]


def test_chunks_that_are_not_there_have_no_vector() -> None:
    def embed(ids: torch.Tensor, mask: torch.Tensor) -> Vectors:
        return Vectors(mask.sum(dim=2, keepdim=True).float(), mask[:, :, 1])

    texts = [np.full(n, 5, np.uint16) for n in (0, 3, 4, 20)]
    encoded = TextEncoder(embed, ChunkFraming(VOCABULARY, 5, chunks=3)).vectors(texts)
    assert [vectors_of(encoded, i)[:, 0].tolist() for i in range(4)] == [[2], [5], [5, 3], [5, 5, 5]]


class Filled(Framing):
    """A framing that pads every text to `max_tokens`."""

    def arrays(self, texts: list[np.ndarray]) -> dict[str, np.ndarray]:  # type: ignore[override]
        arrays = super().arrays(texts)
        ids = np.full((len(texts), self.max_tokens), self.vocabulary.mask)
        ids[:, : arrays["ids"].shape[1]] = arrays["ids"]
        return {"ids": ids, "mask": np.ones(ids.shape, bool)}


def test_a_framing_that_fills_texts_up_does_not_overrun_the_budget() -> None:
    odd = Odd()
    with patch.dict(BATCH_TOKENS, cpu=100):
        TextEncoder(odd, Filled(VOCABULARY, 32)).vectors([np.array([i], np.uint16) for i in range(5, 45)])
    assert sum(rows for rows, _ in odd.batches) == 40
    assert all(rows * (width - 7) <= 100 for rows, width in odd.batches)  # widths may be rounded up


def test_several_vectors_are_not_taken_for_one() -> None:
    with pytest.raises(ValueError, match="1 texts have 3 vectors, not one each"):
        TextEncoder(Odd(), Framing(VOCABULARY, 20)).embeddings([np.array([5, 7], np.uint16)])


def test_embeddings_are_held_once() -> None:
    def wide(ids: torch.Tensor, mask: torch.Tensor) -> Vectors:
        return Vectors(torch.ones(len(ids), 1, 2000), mask[:, :1])

    texts = [np.array([5 + i % 90, 5 + i // 90], np.uint16) for i in range(2000)]
    tracemalloc.start()
    try:
        with patch.dict(BATCH_TOKENS, cpu=1000):
            embeddings = TextEncoder(wide, Framing(VOCABULARY, 8)).embeddings(texts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert embeddings.shape == (2000, 2000)
    assert peak < 1.4 * embeddings.nbytes


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_vectors_that_are_not_finite_are_refused(value: float) -> None:
    def broken(ids: torch.Tensor, mask: torch.Tensor) -> Vectors:
        return one_vector(torch.full((len(ids), 2), value))

    encoder = TextEncoder(broken, Framing(VOCABULARY, 8), work="encode documents")
    for encode in (encoder.embeddings, encoder.vectors):
        with pytest.raises(InputError, match="encode documents: .*not finite"):
            encode([np.array([5, 6])])
