"""Sparse encoders: weights, regularisers and keys against plain references."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.framing import Framing
from deepsiam.models.encode import encode
from deepsiam.models.layers import term_weights
from deepsiam.models.layers.term_weights import own_vocabulary_weights, vocabulary_weights
from deepsiam.models.matching import query_weights
from deepsiam.models.matching.query_weights import document_frequencies
from deepsiam.models.matching.sparse import Sparse
from deepsiam.models.trunk import token_embedding
from tests.models.matching.examples import keys_of, micro_batch, positive
from tests.models.tiny import VOCABULARY, perturbed, tensors, trunk

FRAMING = Framing(VOCABULARY, 12)
EXAMPLES = [positive(0, given=[5]), positive(3, query=(30, 6, 30), given=[2]), positive(7, query=(9,), given=[1])]
POOLINGS = pytest.mark.parametrize("pooling", ["max", "sum"])
sparse = partial(keys_of, "sparse", max_query_tokens=8)


def build(keys: Any, **config: Any) -> Sparse:
    model = perturbed(keys.model(trunk(**config)))
    assert isinstance(model, Sparse)
    return model


def weights_of(model: Sparse, row: Iterable[int], pooling: str, first: int = 0) -> Tensor:
    """The weights of the whole vocabulary, in a loop over positions, from `first` on, of a framed text."""
    ids = torch.tensor([[*row]])
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
    keys = sparse(query=query, document=document, pooling=pooling)
    model, arrays = build(keys), tensors(micro_batch(keys, EXAMPLES))
    encoded = model(**arrays, represent=True)
    for i, example in enumerate(EXAMPLES):
        expected = weights_of(model, FRAMING.row(example.query), pooling)
        expected = only(expected, example.query) if query == "own_tokens" else expected
        assert (expected > 0).any()
        torch.testing.assert_close(encoded["query_vectors"][i, 0], expected, rtol=1e-10, atol=1e-12)
        text = np.full(int(example.candidates[0]) + 1, 5 + int(example.candidates[0]))
        expected = weights_of(model, FRAMING.row(text), pooling)
        expected = only(expected, text) if document == "own_tokens" else expected
        torch.testing.assert_close(encoded["document_vectors"][i, 0], expected, rtol=1e-10, atol=1e-12)


@POOLINGS
@pytest.mark.parametrize("sparse_on", [("cpu",), ()])
@pytest.mark.parametrize("of", [vocabulary_weights, own_vocabulary_weights])
def test_gradients_are_those_of_the_definition(
    of: Any, pooling: str, sparse_on: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_weights, "SPARSE_ON", sparse_on)
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


def test_a_query_of_tokens_counts_each_but_stop_words_and_has_no_encoder() -> None:
    vocabulary = Worded(40, pad=0, unk=1, cls=2, sep=3, mask=4)
    keys = sparse(query="tokens", max_query_tokens=3)
    framing = keys.query_framing(vocabulary)
    texts = [np.array(ids, np.uint16) for ids in ([9, 7, 7, 5, 8, 6], [5, 6], [1, 7], [])]
    arrays = tensors(framing.arrays(texts))
    model = build(keys)
    model.trunk.forward = None  # type: ignore[method-assign,assignment]
    vectors, real = model.embed_queries(**arrays)
    expected = torch.zeros(4, 40, dtype=torch.float64)
    expected[0, 9], expected[0, 7] = 1, 2  # cut to three; 5 and 6 are stop words
    expected[2, 7] = 1  # an unknown token is no term
    assert real.all()
    torch.testing.assert_close(vectors[:, 0], expected)


@pytest.mark.parametrize("query", ["idf", "table"])
def test_a_query_of_a_table_has_the_weight_of_each_token_once(query: str) -> None:
    vocabulary = Worded(40, pad=0, unk=1, cls=2, sep=3, mask=4)
    keys = sparse(query=query, max_query_tokens=4)
    texts = [np.array(ids, np.uint16) for ids in ([9, 7, 7, 5, 8], [1, 6], [])]
    model = build(keys)
    documents = [np.array(ids, np.uint16) for ids in ([5, 9, 9], [5, 7], [5, 9], [5])]
    if query == "idf":
        model.query_table.fit(*document_frequencies(documents, 40))
        counts = [sum(token in document.tolist() for document in documents) for token in range(40)]
        weights = [math.log(1 + (4 - count + 0.5) / (count + 0.5)) for count in counts]
    else:
        head = model.query_table.token_weight
        embeddings = token_embedding(model.trunk).detach()
        logits = [head.weight.detach()[0] @ embedding + head.bias.detach()[0] for embedding in embeddings]
        weights = [float(torch.log1p(torch.relu(logit))) for logit in logits]
    expected = torch.zeros(3, 40, dtype=torch.float64)
    for row, tokens in enumerate([[9, 7, 5], [6], []]):  # cut to four; stop words count; an unknown token is no term
        expected[row, tokens] = torch.tensor(weights, dtype=torch.float64)[tokens]
    model.trunk.forward = None  # type: ignore[method-assign,assignment]
    vectors, _ = model.embed_queries(**tensors(keys.query_framing(vocabulary).arrays(texts)))
    torch.testing.assert_close(vectors[:, 0], expected, rtol=1e-10, atol=0)
    assert len(set(weights)) > 2


def test_documents_that_have_a_token_are_counted_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 30, length).astype(np.uint16) for length in rng.integers(0, 40, 50)]
    expected = [sum(token in text.tolist() for text in texts) for token in range(30)]
    for at_once in (4096, 7, 1):
        monkeypatch.setattr(query_weights, "TEXTS_AT_ONCE", at_once)
        frequencies, number = document_frequencies(iter(texts), 30)
        assert (frequencies.tolist(), number) == (expected, len(texts))


class Worded(Vocabulary):
    """A vocabulary with two stop words."""

    stop_words = (5, 6)  # type: ignore[assignment]


@POOLINGS
def test_a_linear_head_weighs_each_token_and_pools_equal_ones(pooling: str) -> None:
    keys = sparse(query="own_tokens", document="own_tokens", head="linear", pooling=pooling)
    model, arrays = build(keys), tensors(micro_batch(keys, EXAMPLES))
    vectors = model(**arrays, represent=True)["query_vectors"][:, 0]
    for row, ids, mask in zip(vectors, arrays["query_ids"], arrays["query_mask"], strict=True):
        own = ids[mask]
        states = encode(model.trunk, own[None], torch.ones_like(own, dtype=torch.bool)[None])[0]
        expected = torch.zeros(40, dtype=torch.float64)
        for token, weight in zip(own.tolist(), torch.relu(model.token_weight(states)[:, 0]), strict=True):
            expected[token] = torch.maximum(expected[token], weight) if pooling == "max" else expected[token] + weight
        expected[list(VOCABULARY.special)] = 0
        torch.testing.assert_close(row, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cls", [None, 2])
def test_a_causal_trunk_leaves_out_only_what_the_tokenizer_puts_before_a_text(cls: int | None) -> None:
    vocabulary = Vocabulary(40, pad=0, unk=1, cls=cls, sep=None, mask=None)
    (before, after), text = vocabulary.text_frame, np.array([7, 9, 8])
    assert (len(before), len(after)) == (cls is not None, 0)
    keys = sparse(max_document_tokens=8)
    model = build(keys, is_decoder=True)
    arrays = keys.document_framing(vocabulary).arrays([text])
    row = model.embed_documents(**tensors(arrays)).vectors[0, 0]
    expected = weights_of(model, [*before, *text], "max", first=len(before))
    torch.testing.assert_close(row[5:], expected[5:], rtol=1e-10, atol=1e-12)


def test_regularisers_of_one_micro_batch_are_their_definitions() -> None:
    penalty = {"l1": 1.0, "flops": 1.0}
    keys = sparse(regularise={"query": penalty, "document": penalty})
    model, batch = build(keys), micro_batch(keys, EXAMPLES)
    losses, encoded = (model(**tensors(batch), represent=represent) for represent in (False, True))
    for side in ("query", "document"):
        weights = encoded[f"{side}_vectors"][:, 0]
        means = {kind: losses[f"{side}_{kind}"] / batch.counts[f"{side}_{kind}"] for kind in penalty}
        torch.testing.assert_close(means["l1"], weights.abs().sum(dim=1).mean())
        torch.testing.assert_close(means["flops"], (weights.mean(dim=0) ** 2).sum())


@POOLINGS
@pytest.mark.parametrize(("asked", "terms"), [(1, 1), (3, 3), (30, 4)])  # of 40: at most a tenth
def test_a_new_bias_of_the_head_gives_documents_their_number_of_terms(asked: int, terms: int, pooling: str) -> None:
    keys = sparse(start_terms=asked, pooling=pooling)
    model = build(keys, hidden_dropout_prob=0.5).train()
    before = model.lm_head.bias.clone()
    texts = [np.array(text) for text in ([20, 21, 22, 23], [30], [24, 25, 31, 9, 8, 7])]
    documents = tensors(keys.document_framing(VOCABULARY).arrays(texts))
    line = model.fit_start(**documents)
    assert model.training
    moved = model.lm_head.bias - before
    assert moved.max() - moved.min() < 1e-4  # by one constant, which the loss of a masked LM does not see
    assert line == f"documents start with {terms} terms each: {moved[0]:+.2f} on the bias of the masked LM's head"
    weights = model.eval().embed_documents(**documents).vectors
    assert int((weights > 0).sum()) in (terms * len(texts), terms * len(texts) - 1)  # the last one is 0, to rounding


def test_what_ends_learning_is_said() -> None:
    keys = sparse(regularise={"query": {"l1": 0.1}, "document": {"flops": 0.1}})
    assert keys.remarks({"softmax": 0.0, "query_l1": 3.0, "document_flops": 9.0}) == {}
    said = keys.remarks({"query_l1": 0.0, "document_flops": 25_000.0, "document_flops/web": 0.0})
    assert said == {
        "query_l1": "every weight of every query is 0: lower method.regularise.query.l1",
        "document_flops": "document_flops: each document has weights for most terms of the vocabulary: set "
        "method.start_terms",
    }
    own = sparse(head="linear", query="own_tokens", document="own_tokens", regularise=keys.regularise.model_dump())
    assert own.remarks({"document_flops": 25_000.0}) == {}  # it has no start_terms


def test_the_weights_of_regularisers_rise_quadratically() -> None:
    keys = sparse(regularise={"query": {"l1": 0.5}, "document": {"flops": 0.25}, "ramp": 4})
    assert [keys.weights_at(step)["query_l1"] for step in range(6)] == [0.5 * x / 16 for x in (1, 4, 9, 16, 16, 16)]
    assert keys.weights_at(1) == {"softmax": 1.0, "query_l1": 0.125, "document_flops": 0.0625}
    assert keys.weights_at(3) == keys.weights_at(100) == keys.weights
    assert sparse(regularise={"document": {"l1": 2.0}, "ramp": 0}).weights_at(0)["document_l1"] == 2


def test_a_step_is_whole_for_flops_only() -> None:
    assert sparse(regularise={"document": {"flops": 0.1}}).spans_step
    assert not sparse(regularise={"document": {"l1": 0.1}}).spans_step
    assert sparse(negatives="step").spans_step
