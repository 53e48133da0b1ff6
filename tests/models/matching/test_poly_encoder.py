"""The Poly-encoder against loops over texts, vectors and documents, and properties that hold for any weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepsiam.models.matching.poly_encoder import PolyEncoder, PolyEncoderConfig
from deepsiam.models.matching.siamese import Siamese
from deepsiam.models.vectors import Vectors, one_vector
from tests.models import plain
from tests.models.matching.examples import micro_batch, positive, siamese
from tests.models.tiny import CONFIG, VOCABULARY, tensors, trunk
from tests.models.vectors import random_vectors

IDS = torch.tensor([[2, 9, 8, 3, 0, 0, 0], [2, 9, 8, 7, 6, 5, 3], [2, 11, 3, 0, 0, 0, 0]])
MASK = VOCABULARY.pad != IDS
EXAMPLES = [
    positive(0, 1, query=range(10, 20)),
    positive(1, query=[7]),
    positive(2, 0, query=range(20, 24)),
    positive(1, 3),
]
KINDS = ["learnt", "first", "last", "last_and_first"]


def keys(**changed: Any) -> PolyEncoderConfig:
    lengths = {"max_query_tokens": 9, "max_document_tokens": 12}
    return PolyEncoderConfig(name="poly_encoder", **{**lengths, "m": 4, **changed})


def poly(**changed: Any) -> PolyEncoder:
    torch.manual_seed(0)
    return PolyEncoder(trunk(), keys(**changed)).double()


def states_of(model: PolyEncoder, tower: Any, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """The scaled states of each text by itself, without padding."""
    return [
        tower(input_ids=row[keep][None]).last_hidden_state[0] * model.scaling
        for row, keep in zip(ids, mask, strict=True)
    ]


def vectors_of(model: PolyEncoder, states: Tensor) -> list[Tensor]:
    """A query's vectors."""
    m, n = model.keys.m, len(states)
    if model.keys.codes == "learnt":
        return [torch.stack([code @ h for h in states]).softmax(0) @ states for code in model.codes.weight]
    if model.keys.codes == "first":
        return list(states[:m])
    last = list(states[max(0, n - m) :])
    return [states[0], *last] if model.keys.codes == "last_and_first" and n > m else last


def scores_of(model: PolyEncoder, arrays: dict[str, Tensor]) -> Tensor:
    """Compute the score of each query with each document, pair by pair."""
    queries = states_of(model, model.trunk, arrays["query_ids"], arrays["query_mask"])
    documents = states_of(model, model.tower("document"), arrays["document_ids"], arrays["document_mask"])
    rows = []
    for query in queries:
        own = vectors_of(model, query)
        row = []
        for document in documents:
            candidate = document[0] if model.keys.reduction == "first" else document.mean(0)
            weights = torch.stack([y @ candidate for y in own]).softmax(0)
            row.append(sum(w * y for w, y in zip(weights, own, strict=True)) @ candidate)
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("codes", KINDS)
@pytest.mark.parametrize("reduction", ["first", "mean"])
def test_loss_scores_and_gradient_against_loops(codes: str, reduction: str) -> None:
    model = poly(codes=codes, reduction=reduction, temperature=0.3)
    arrays = tensors(micro_batch(model.keys, EXAMPLES))
    scores = scores_of(model, arrays)
    queries = model.embed_queries(arrays["query_ids"], arrays["query_mask"])
    documents = model.embed_documents(arrays["document_ids"], arrays["document_mask"])
    torch.testing.assert_close(model.score(queries, documents), scores, rtol=0, atol=1e-12)
    expected = plain.in_batch_softmax(scores, arrays, 0.3)
    loss = model(**arrays)["softmax"]
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    plain.same_gradients(model, loss, expected)
    if codes == "learnt":
        assert torch.autograd.grad(loss, model.codes.weight)[0].abs().max() > 1e-6


def test_one_first_vector_is_a_bi_encoder() -> None:
    model = poly(m=1, codes="first", output_scaling=1.0)
    bi = Siamese(trunk(), siamese(towers=2)).double()
    with torch.no_grad():
        ours, theirs = (
            each.score(each.embed_queries(IDS, MASK), each.embed_documents(IDS, MASK)) for each in (model, bi)
        )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def scores(model: PolyEncoder, ids: Tensor = IDS, mask: Tensor = MASK) -> Tensor:
    with torch.no_grad():
        return model.score(model.embed_queries(ids, mask), model.embed_documents(ids, mask))


def test_equal_codes_are_one_and_their_order_does_not_matter() -> None:
    model, one = poly(), poly(m=1)
    before = scores(model)
    model.codes.weight.data = model.codes.weight.data[[2, 0, 3, 1]]
    torch.testing.assert_close(scores(model), before, rtol=0, atol=1e-12)
    model.codes.weight.data = one.codes.weight.data.expand(4, -1).clone()
    torch.testing.assert_close(scores(model), scores(one), rtol=0, atol=1e-12)


def test_a_code_of_zeros_is_the_mean_without_padding() -> None:
    model = poly(m=1)
    torch.nn.init.zeros_(model.codes.weight)
    means = torch.stack([states.mean(0) for states in states_of(model, model.trunk, IDS, MASK)])
    torch.testing.assert_close(model.embed_queries(IDS, MASK).vectors[:, 0], means, rtol=0, atol=1e-12)


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 6), st.integers(0, 99))
def test_a_score_lies_between_the_mean_and_the_largest_product(q: int, m: int, d: int, seed: int) -> None:
    queries, documents = random_vectors(q, m, seed), one_vector(random_vectors(d, 1, seed + 1).vectors[:, 0])
    found = poly().score(queries, documents)
    assert found.shape == (q, d)
    for i in range(q):
        products = queries.vectors[i, queries.mask[i]] @ documents.vectors[:, 0].T  # [real, D]
        assert (found[i] >= products.mean(0) - 1e-12).all()
        assert (found[i] <= products.amax(0) + 1e-12).all()


def test_a_short_query_has_fewer_vectors() -> None:
    # the texts have 4, 7 and 3 tokens
    real = {codes: poly(codes=codes, m=5).embed_queries(IDS, MASK).mask.sum(1).tolist() for codes in KINDS}
    assert real == {"learnt": [5, 5, 5], "first": [4, 5, 3], "last": [4, 5, 3], "last_and_first": [4, 6, 3]}


def test_towers_are_equal_at_first_and_trained_apart() -> None:
    model, one = poly(), poly(towers=1)
    torch.testing.assert_close(scores(model), scores(one), rtol=0, atol=1e-12)
    arrays = tensors(micro_batch(model.keys, EXAMPLES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**arrays)["softmax"].backward()
    optimizer.step()
    pairs = zip(model.trunk.parameters(), model.document_trunk.parameters(), strict=True)
    assert all(not torch.equal(a, b) for a, b in pairs if a.grad is not None and a.grad.any())
    assert {name.split(".")[0] for name in model.heads} == {"codes", "document_trunk"}
    assert {name.split(".")[0] for name in one.heads} == {"codes"}


@pytest.mark.parametrize("width", [32, 768])
@pytest.mark.parametrize("scaling", [None, 1.0])
def test_no_attention_is_saturated_at_first(width: int, scaling: float | None) -> None:
    """Compare the entropy of both attentions with its maximum, for states like those of BERT's last LayerNorm."""
    config = {**CONFIG, "hidden_size": width, "num_hidden_layers": 1}
    model = PolyEncoder(trunk(**config), keys(m=8, output_scaling=scaling))
    states = torch.nn.functional.layer_norm(torch.randn(16, 128, width), (width,)) * model.scaling
    mask = torch.ones(16, 128, dtype=torch.bool)

    def share(logits: Tensor) -> float:
        p = logits.detach().softmax(-1)
        return float(-(p * p.clamp(min=1e-30).log()).sum(-1).mean() / torch.tensor(p.shape[-1]).log())

    codes = share(model.codes.weight.float() @ states.transpose(1, 2))
    queries = Vectors(states[:, :8], mask[:, :8])  # states themselves, not averages of them: the harder case
    documents = torch.nn.functional.layer_norm(torch.randn(16, width), (width,)) * model.scaling
    vectors = share((queries.vectors * documents[:, None]).sum(-1))
    assert 0.85 < codes < 0.97
    if scaling is None:
        assert 0.7 < vectors < 0.97
    else:
        assert vectors < 0.6  # the saturation that the scaling prevents


def test_a_causal_trunk_is_refused_where_cls_is_used() -> None:
    causal = trunk(is_decoder=True)
    for changed in ({}, {"reduction": "mean", "codes": "first"}, {"reduction": "mean", "codes": "last_and_first"}):
        with pytest.raises(ValueError, match="causal"):
            PolyEncoder(causal, keys(**changed))
    for codes in ("learnt", "last"):
        PolyEncoder(causal, keys(reduction="mean", codes=codes))


def test_by_default_a_dialogue_keeps_its_end_and_there_are_two_towers() -> None:
    default = PolyEncoderConfig(name="poly_encoder")
    assert (default.kept_of_query, default.towers, default.m, default.reduction) == ("end", 2, 64, "first")
    assert (default.max_query_tokens, default.max_document_tokens, default.added_tokens) == (360, 72, 0)
    query = micro_batch(keys(), [positive(0, query=range(10, 20))]).arrays["query_ids"][0]
    assert query.tolist() == [VOCABULARY.cls, *range(13, 20), VOCABULARY.sep]
