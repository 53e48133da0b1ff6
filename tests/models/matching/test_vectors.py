"""Scores of several vectors per text, of ColBERT and Poly-encoders: of each text by itself, in blocks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models import vectors as vectors_module
from deepsiam.models.registry import MATCHING
from deepsiam.models.vectors import Vectors
from tests.models.tiny import Sizes, trunk
from tests.models.vectors import chosen, random_vectors, stretched

MODELS = {name: MATCHING[name](name=name).model(trunk(vocab_size=42)) for name in ("colbert", "poly_encoder")}


def documents_of(name: str, texts: int, vectors: int, seed: int) -> Vectors:
    """Documents of a Poly-encoder have one vector each."""
    return random_vectors(texts, vectors, seed) if name == "colbert" else random_vectors(texts, 1, seed, padded=False)


@pytest.mark.parametrize("name", MODELS)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_a_score_depends_on_no_other_text_nor_on_padding_or_blocks(
    name: str, q: int, m: int, d: int, k: int, seed: int
) -> None:
    model, queries, documents = MODELS[name], random_vectors(q, m, seed), documents_of(name, d, k, seed + 1)
    together = model.score(queries, documents)
    assert together.shape == (q, d)
    for i in range(q):
        for j in range(d):
            alone = model.score(chosen(queries, i), chosen(documents, j))
            torch.testing.assert_close(alone[0, 0], together[i, j], rtol=0, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors_module, "QUERY_BLOCK", 2 * m)
        patch.setattr(vectors_module, "DOCUMENT_BLOCK", 2)
        torch.testing.assert_close(model.score(queries, documents), together, rtol=0, atol=1e-12)
    wider = stretched(documents, 3, value=1e3) if name == "colbert" else documents
    torch.testing.assert_close(model.score(stretched(queries, 2, value=1e3), wider), together, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "number", "k"), [("colbert", 20_000, 4), ("poly_encoder", 100_000, 1)])
def test_many_documents_are_scored_in_bounded_memory(name: str, number: int, k: int) -> None:
    queries, documents = random_vectors(2, 16, 0), documents_of(name, number, k, 1)
    with Sizes() as sizes:
        scores = MODELS[name].score(queries, documents)
    assert scores.shape == (2, number)
    assert max(sizes.allocated) <= 2 * 16 * vectors_module.DOCUMENT_BLOCK  # not [2, 16, documents]
