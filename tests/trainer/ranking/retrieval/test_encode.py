"""Texts are encoded in any order and batch, within the token budget, by the model's own embedding."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.framing import Framing
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.matching.siamese import Siamese, SiameseConfig
from deepsiam.models.vectors import Vectors, one_vector
from deepsiam.trainer.ranking.retrieval.encode import BATCH_TOKENS, TextEncoder, length_batches
from tests import toy

VOCABULARY = Vocabulary(100, pad=0, unk=1, cls=2, sep=3, mask=4)


class Spy:
    """Embeds a text as (its length, the sum of its ids, its first id) and records the shapes of batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> Vectors:
        self.batches.append(tuple(ids.shape))
        assert bool((ids[~mask] == VOCABULARY.pad).all())
        read = ids * mask
        return one_vector(torch.stack([mask.sum(1), read.sum(1), read[:, 0]], dim=1).float())


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


TEXTS = st.lists(hnp.arrays(np.uint16, st.integers(0, 30), elements=st.integers(5, 99)), min_size=1, max_size=40)


@given(TEXTS, st.integers(3, 40), st.integers(1, 200))
def test_encoding_keeps_the_order_and_the_budget(texts: list[np.ndarray], max_tokens: int, budget: int) -> None:
    spy = Spy()
    with patch.dict(BATCH_TOKENS, cpu=budget):
        embeddings = TextEncoder(spy, Framing(VOCABULARY, max_tokens)).embeddings(texts)
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
    embed = Siamese(trunk, SiameseConfig(name="siamese", pooling="mean", similarity="cosine")).eval().embed_queries
    framing = Framing(VOCABULARY, 32)
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, 100, rng.integers(0, 50)).astype(np.uint16) for _ in range(20)]
    together = TextEncoder(embed, framing).embeddings(texts)
    alone = np.concatenate([TextEncoder(embed, framing).embeddings([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_embeddings_that_are_not_finite_are_refused() -> None:
    def broken(ids: torch.Tensor, mask: torch.Tensor) -> Vectors:
        return one_vector(torch.full((len(ids), 2), torch.nan))

    with pytest.raises(InputError, match="encode documents: .*not finite"):
        TextEncoder(broken, Framing(VOCABULARY, 8), what="encode documents").embeddings([np.array([5, 6])])
