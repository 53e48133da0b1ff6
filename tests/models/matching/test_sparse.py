"""Sparse encoders: weights, regularisers and keys against plain references."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from models.batching.framing import Framing
from models.encode import encode
from models.layers.term_weights import own_vocabulary_weights, vocabulary_weights
from models.matching.sparse import Sparse, SparseConfig
from models.trunk import token_embedding
from models.vectors import Vectors
from tests.models.matching.examples import micro_batch, positive
from tests.models.tiny import VOCABULARY, perturbed, tensors, trunk

EXAMPLES = [positive(0, given=[5]), positive(3, query=(30, 6, 30), given=[2]), positive(7, query=(9,), given=[1])]
POOLINGS = pytest.mark.parametrize("pooling", ["max", "sum"])


def keys_of(**keys: Any) -> SparseConfig:
    return SparseConfig.model_validate({"name": "sparse", "max_query_tokens": 8, "max_document_tokens": 12, **keys})


def build(keys: SparseConfig, **config: Any) -> Sparse:
    model = perturbed(keys.model(trunk(**config)))
    assert isinstance(model, Sparse)
    return model


def weights_of(model: Sparse, text: np.ndarray, pooling: str, first: int = 0) -> Tensor:
    """The weights of the whole vocabulary, in a loop over positions, from `first` on, of the text without padding."""
    ids = torch.from_numpy(Framing(VOCABULARY, 12).row(text))[None]
    states = encode(model.trunk, ids, torch.ones_like(ids, dtype=torch.bool))[0]
    head = model.lm_head
    weights = []
    for state in states[first:]:
        logits = token_embedding(model.trunk) @ head.norm(head.activation(head.dense(state))) + head.bias
        weights.append(torch.log(1 + torch.clamp(logits, min=0)))
    pooled = torch.stack(weights).sum(0) if pooling == "sum" else torch.stack(weights).max(0).values
    pooled[list(VOCABULARY.special)] = 0
    return pooled


def only(weights: Tensor, terms: np.ndarray) -> Tensor:
    own = torch.zeros_like(weights)
    own[terms.astype(np.int64)] = weights[terms.astype(np.int64)]
    return own


@POOLINGS
@pytest.mark.parametrize("document", ["vocabulary", "own_tokens"])
@pytest.mark.parametrize("query", ["encoder", "own_tokens"])
def test_a_weight_is_the_pooled_logarithm_of_a_logit(query: str, document: str, pooling: str) -> None:
    keys = keys_of(query=query, document=document, pooling=pooling)
    model, arrays = build(keys), tensors(micro_batch(keys, EXAMPLES))
    encoded = model(**arrays, represent=True)
    for i, example in enumerate(EXAMPLES):
        expected = weights_of(model, example.query, pooling)
        expected = only(expected, example.query) if query == "own_tokens" else expected
        assert (expected > 0).any()
        torch.testing.assert_close(encoded["query_vectors"][i, 0], expected, rtol=1e-10, atol=1e-12)
        text = np.full(int(example.candidates[0]) + 1, 5 + int(example.candidates[0]))
        expected = weights_of(model, text, pooling)
        expected = only(expected, text) if document == "own_tokens" else expected
        torch.testing.assert_close(encoded["document_vectors"][i, 0], expected, rtol=1e-10, atol=1e-12)


@POOLINGS
@pytest.mark.parametrize("of", [vocabulary_weights, own_vocabulary_weights])
def test_gradients_are_those_of_the_definition(of: Any, pooling: str) -> None:
    torch.manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape).double() for shape in ((3, 5, 8), (150, 8), (150,)))
    mask, terms = torch.arange(5) < torch.tensor([[5], [2], [3]]), torch.randint(150, (3, 5))
    terms[0, 3] = terms[0, 0]

    def plain(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        values = torch.log1p(torch.relu(hidden @ weight.T + bias)) * mask[:, :, None]
        values = values.sum(dim=1) if pooling == "sum" else values.max(dim=1).values
        if of is vocabulary_weights:
            return values
        own = torch.zeros(3, 150, dtype=torch.float64)
        for row in range(3):
            own[row, terms[row][mask[row]]] = 1
        return values * own

    last = 64 if of is vocabulary_weights else terms
    order = (mask, pooling, last) if of is vocabulary_weights else (mask, terms, pooling)
    factors, results = torch.randn(3, 150).double(), []
    for compute in (plain, lambda *inputs: of(*inputs, *order)):
        inputs = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
        weights = compute(*inputs)
        results.append([weights, *torch.autograd.grad((weights * factors).sum(), inputs)])
    for ours, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)
