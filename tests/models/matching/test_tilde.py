"""TILDE: markers in the place of [CLS], terms, and its loss against a loop over the vocabulary."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.encode import encode
from deepsiam.models.matching.tilde import Tilde, terms_in
from tests.models import plain
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


def test_a_marker_replaces_no_word_where_nothing_stands_before_a_text() -> None:
    framing = keys().query_framing(Worded(vocab_size=40, pad=0, unk=1, cls=None, sep=3, mask=None))
    assert framing.row(np.array([30, 8, 9])).tolist() == [40, 30, 8, 9, 3]
    assert framing.row(np.array([30, 8, 9, 10])).tolist() == [40, 30, 8, 9, 3]


def test_a_new_bias_makes_so_many_terms_of_a_document_likely() -> None:
    model, chosen = tilde(start_terms=3).train(), keys(start_terms=3)
    documents = tensors(chosen.document_framing(VOCABULARY).arrays([np.arange(5, 9), np.arange(9, 14)]))
    assert model.fit_start(**documents).startswith("documents start with 3 terms each: ")
    likelihoods = model.eval().embed_documents(**documents).vectors.exp()
    assert int((likelihoods >= 0.5 - 1e-6).sum()) == 6


def test_texts_begin_with_a_marker_and_terms_are_distinct_whole_words_of_what_the_model_reads() -> None:
    arrays = micro_batch(keys(), EXAMPLES, vocabulary=VOCABULARY).arrays
    assert arrays["query_ids"].tolist()[0][:5] == [40, 30, 8, 8, 3]  # cut to 5 tokens
    assert arrays["document_ids"].tolist()[0][:3] == [41, 5, 3]
    assert [sorted({*row} - {0}) for row in arrays["terms_of_query"].tolist()] == [[8], [], [8, 9]]
    assert [sorted({*row} - {0}) for row in arrays["terms_of_document"].tolist()] == [[5], [], [9]]
    assert np.flatnonzero(terms_in(VOCABULARY)).tolist() == [5, 6, *range(8, 30)]


def test_losses_and_gradients_are_those_of_each_words_cross_entropy_and_vectors_its_logarithms() -> None:
    model, batch = tilde(), micro_batch(keys(), EXAMPLES, vocabulary=VOCABULARY)
    arrays, words, expected = tensors(batch), np.flatnonzero(terms_in(VOCABULARY)), {}
    for read, loss, of in (("document", "query_likelihood", "query"), ("query", "document_likelihood", "document")):
        logits = model.logits(encode(model.trunk, arrays[f"{read}_ids"], arrays[f"{read}_mask"])[:, 0])
        present = torch.zeros_like(logits).scatter(1, arrays[f"terms_of_{of}"], 1.0)  # 0, which fills up, is no word
        expected[loss] = F.binary_cross_entropy_with_logits(logits[:, words], present[:, words], reduction="sum")
        if read == "document":
            vectors, mask = model.embed_documents(arrays["document_ids"], arrays["document_mask"])
            assert mask.all()
            torch.testing.assert_close(vectors[:, 0].exp(), logits.sigmoid())
    assert batch.counts == dict.fromkeys(expected, len(EXAMPLES))
    plain.same_losses_and_gradients(model, batch, expected)
    alone = tilde(loss="query_likelihood", alpha=1.0)
    torch.testing.assert_close(alone(**arrays), {"query_likelihood": expected["query_likelihood"]})
    assert alone.keys.weights.keys() == {"query_likelihood"}
