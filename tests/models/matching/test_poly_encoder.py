"""The Poly-encoder against loops over texts, vectors and documents, and how it starts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from deepsiam.models.matching.poly_encoder import PolyEncoder
from tests.models import plain
from tests.models.matching.examples import keys_of, micro_batch, positive
from tests.models.tiny import CONFIG, VOCABULARY, tensors, trunk

EXAMPLES = [
    positive(0, 1, query=range(10, 20)),
    positive(1, query=[7]),
    positive(2, 0, query=range(20, 24)),
    positive(1, 3),
]
keys = partial(keys_of, "poly_encoder", max_query_tokens=9, m=4)


def poly(**changed: Any) -> PolyEncoder:
    torch.manual_seed(0)
    return PolyEncoder(trunk(), keys(**changed)).double()


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
    queries, documents = (
        [states * model.scaling for states in plain.states_alone(model.tower(side), arrays, side)]
        for side in ("query", "document")
    )
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


@pytest.mark.parametrize("codes", ["learnt", "first", "last", "last_and_first"])
@pytest.mark.parametrize("reduction", ["first", "mean"])
def test_loss_scores_and_gradient_against_loops(codes: str, reduction: str) -> None:
    model = poly(codes=codes, reduction=reduction, temperature=0.3)
    arrays = tensors(micro_batch(model.keys, EXAMPLES))  # queries with more, fewer and as many states as m
    loss = plain.same_scores_loss_and_gradients(model, arrays, scores_of(model, arrays))
    if codes == "learnt":
        assert torch.autograd.grad(loss, model.codes.weight)[0].abs().max() > 1e-6


def test_towers_are_equal_at_first_and_trained_apart() -> None:
    model, one = poly(), poly(towers=1)
    arrays = tensors(micro_batch(model.keys, EXAMPLES))
    loss = model(**arrays)["softmax"]
    torch.testing.assert_close(loss, one(**arrays)["softmax"], rtol=1e-12, atol=0)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
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

    def share(logits: Tensor) -> float:
        p = logits.detach().softmax(-1)
        return float(-(p * p.clamp(min=1e-30).log()).sum(-1).mean() / torch.tensor(p.shape[-1]).log())

    codes = share(model.codes.weight.float() @ states.transpose(1, 2))
    documents = torch.nn.functional.layer_norm(torch.randn(16, width), (width,)) * model.scaling
    # states themselves, not averages of them: the harder case
    vectors = share((states[:, :8] * documents[:, None]).sum(-1))
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


def test_by_default_a_dialogue_keeps_its_end() -> None:
    query = micro_batch(keys(), [positive(0, query=range(10, 20))]).arrays["query_ids"][0]
    assert query.tolist() == [VOCABULARY.cls, *range(13, 20), VOCABULARY.sep]
