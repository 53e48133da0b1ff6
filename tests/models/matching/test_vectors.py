"""Scores of several vectors per text, of ColBERT and Poly-encoders: of each text by itself, in blocks, in memory."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models import vectors as vectors_module
from deepsiam.models.registry import MATCHING
from deepsiam.models.vectors import Vectors
from tests.models.tiny import Sizes, trunk

MODELS = {name: MATCHING[name](name=name).model(trunk(vocab_size=42)) for name in ("colbert", "poly_encoder")}


def random_vectors(texts: int, m: int, seed: int) -> Vectors:
    """Vectors fp64 [texts, m, 8] of norms near 4; some are padding, never the first of a text."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(texts, m, generator=generator) < 0.6
    mask[:, 0] = True
    return Vectors(torch.randn(texts, m, 8, generator=generator, dtype=torch.float64) * 1.5, mask)


def stretched(vectors: Vectors, by: int) -> Vectors:
    """The same texts with more padding, whose vectors are large."""
    return Vectors(F.pad(vectors.vectors, (0, 0, 0, by), value=1e3), F.pad(vectors.mask, (0, by)))


@pytest.mark.parametrize("name", MODELS)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_a_score_depends_on_no_other_text_nor_on_padding_or_blocks(
    name: str, q: int, m: int, d: int, k: int, seed: int
) -> None:
    k = k if name == "colbert" else 1  # documents of a Poly-encoder have one vector each
    model, queries, documents = MODELS[name], random_vectors(q, m, seed), random_vectors(d, k, seed + 1)
    together = model.score(queries, documents)
    assert together.shape == (q, d)
    for i in range(q):
        for j in range(d):
            own = (Vectors(*(x[[row]] for x in of)) for row, of in ((i, queries), (j, documents)))
            torch.testing.assert_close(model.score(*own)[0, 0], together[i, j], rtol=0, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors_module, "QUERY_BLOCK", 2 * m)
        patch.setattr(vectors_module, "DOCUMENT_BLOCK", 2)
        torch.testing.assert_close(model.score(queries, documents), together, rtol=0, atol=1e-12)
    wider = stretched(documents, 3) if name == "colbert" else documents
    torch.testing.assert_close(model.score(stretched(queries, 2), wider), together, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "number", "k"), [("colbert", 20_000, 4), ("poly_encoder", 100_000, 1)])
def test_many_documents_are_scored_in_bounded_memory(name: str, number: int, k: int) -> None:
    queries, documents = random_vectors(2, 16, 0), random_vectors(number, k, 1)
    with Sizes() as sizes:
        scores = MODELS[name].score(queries, documents)
    assert scores.shape == (2, number)
    assert max(sizes.allocated) <= 2 * 16 * vectors_module.DOCUMENT_BLOCK  # not [2, 16, documents]


def test_the_backward_pass_of_colbert_keeps_no_product() -> None:
    queries, documents = random_vectors(16, 8, 0), random_vectors(32, 16, 1)
    queries.vectors.requires_grad_()
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (saved.append(x.numel()), x)[1], lambda x: x):
        MODELS["colbert"].score(queries, documents).sum().backward()
    assert max(saved) <= 32 * 16 * 8  # the documents' vectors; the products are 16 * 8 * 32 * 16
