"""TILDE: markers in the place of [CLS], terms, and its loss against a loop over the vocabulary."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.encode import encode
from deepsiam.models.matching.tilde import Tilde, likelihood_loss, terms_in
from tests.models.matching.examples import keys_of, micro_batch, positive
from tests.models.tiny import perturbed, tensors, trunk


class Worded(Vocabulary):
    """A vocabulary in which tokens from 30 on are no whole words, and token 7 is a stop word."""

    words = tuple(range(5, 30))  # type: ignore[assignment]
    stop_words = (7,)  # type: ignore[assignment]


VOCABULARY = Worded(vocab_size=40, pad=0, unk=1, cls=2, sep=3, mask=4)
EXAMPLES = [positive(0, query=(30, 8, 8, 7)), positive(2, query=[7]), positive(4, query=(9, 8, 31, 10))]
keys = partial(keys_of, "tilde", max_query_tokens=5, max_document_tokens=9)


def tilde(**changed: Any) -> Tilde:
    return perturbed(Tilde(trunk(vocab_size=42), keys(**changed)))


def test_texts_begin_with_the_marker_of_their_side() -> None:
    arrays = micro_batch(keys(), EXAMPLES, vocabulary=VOCABULARY).arrays
    assert arrays["query_ids"].tolist()[0][:5] == [40, 30, 8, 8, 3]  # cut to 5 tokens
    assert arrays["document_ids"].tolist()[0][:3] == [41, 5, 3]


def test_a_marker_replaces_no_word_where_nothing_stands_before_a_text() -> None:
    framing = keys().query_framing(Worded(vocab_size=40, pad=0, unk=1, cls=None, sep=3, mask=None))
    assert framing.row(np.array([30, 8, 9])).tolist() == [40, 30, 8, 9, 3]
    assert framing.row(np.array([30, 8, 9, 10])).tolist() == [40, 30, 8, 9, 3]


def test_terms_are_distinct_whole_words_of_what_the_model_reads() -> None:
    arrays = micro_batch(keys(), EXAMPLES, vocabulary=VOCABULARY).arrays
    assert [sorted({*row} - {0}) for row in arrays["terms_of_query"].tolist()] == [[8], [], [8, 9]]
    assert [sorted({*row} - {0}) for row in arrays["terms_of_document"].tolist()] == [[5], [], [9]]
    assert np.flatnonzero(terms_in(VOCABULARY)).tolist() == [5, 6, *range(8, 30)]


def first_logits(model: Tilde, arrays: dict[str, Tensor], side: str) -> Tensor:
    return model.logits(encode(model.trunk, arrays[f"{side}_ids"], arrays[f"{side}_mask"])[:, 0])


def test_losses_are_those_of_a_loop_over_the_vocabulary() -> None:
    model, batch = tilde(), micro_batch(keys(), EXAMPLES, vocabulary=VOCABULARY)
    losses, arrays = model(**tensors(batch)), tensors(batch)
    of_queries, of_documents = (first_logits(model, arrays, side) for side in ("query", "document"))
    wanted = {"query_likelihood": (of_documents, "query"), "document_likelihood": (of_queries, "document")}
    for loss, (logits, side) in wanted.items():
        expected = sum(
            binary_cross_entropy(logits[i, t].item(), t in set(row.tolist()))
            for i, row in enumerate(arrays[f"terms_of_{side}"])
            for t in np.flatnonzero(terms_in(VOCABULARY)).tolist()
        )
        assert losses[loss].item() == pytest.approx(expected, rel=1e-12)
    assert batch.counts == dict.fromkeys(wanted, len(EXAMPLES))


def binary_cross_entropy(logit: float, present: bool) -> float:
    likelihood = 1 / (1 + math.exp(-logit))
    return -math.log(likelihood if present else 1 - likelihood)


def test_the_gradient_is_that_of_the_cross_entropy() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 12, dtype=torch.float64, requires_grad=True)
    terms = torch.arange(12) > 2
    present = torch.tensor([[3, 5, 0], [4, 0, 0], [0, 0, 0]])
    (gradient,) = torch.autograd.grad(likelihood_loss(logits, present, terms), logits)
    targets = torch.zeros(3, 12, dtype=torch.float64).scatter(1, present, 1.0)
    torch.testing.assert_close(gradient, (logits.sigmoid() - targets) * terms)


def test_a_new_bias_makes_so_many_terms_of_a_document_likely() -> None:
    model, chosen = tilde(start_terms=3).train(), keys(start_terms=3)
    documents = tensors(chosen.document_framing(VOCABULARY).arrays([np.arange(5, 9), np.arange(9, 14)]))
    assert model.fit_start(**documents).startswith("documents start with 3 terms each: ")
    likelihoods = model.eval().embed_documents(**documents).vectors.exp()
    assert int((likelihoods >= 0.5 - 1e-6).sum()) == 6


def test_vectors_are_logarithms_of_likelihoods() -> None:
    model, arrays = tilde(), tensors(micro_batch(keys(), EXAMPLES, vocabulary=VOCABULARY))
    with torch.no_grad():
        vectors, mask = model.embed_documents(arrays["document_ids"], arrays["document_mask"])
        logits = first_logits(model, arrays, "document")
    assert vectors.shape == (3, 1, 40)
    assert bool(mask.all())
    torch.testing.assert_close(vectors[:, 0].exp(), logits.sigmoid())


def test_a_single_likelihood_trains_alone() -> None:
    model = tilde(loss="query_likelihood", alpha=1.0)
    losses = model(**tensors(micro_batch(keys(), EXAMPLES, vocabulary=VOCABULARY)))
    assert losses.keys() == model.keys.weights.keys() == {"query_likelihood"}
