"""Sentences, and the blocks and rows that they are packed into."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.batching.packing import pack, pad, pad_flat, spread
from deepsiam.models.batching.sentences import ENOUGH, check_boundaries, sentences
from tests.models.tiny import VOCABULARY, Text, documents

CLS, SEP = VOCABULARY.cls, VOCABULARY.sep
MANY_DOCUMENTS = st.lists(st.lists(st.integers(0, 20), max_size=5), max_size=6).map(lambda x: documents(*x))


def test_blocks_are_whole_sentences_across_documents_or_within_one():
    texts = [[np.array([10, 11]), np.array([12])], [np.array([13, 14])], [np.array([15])]]
    first, second, third = [10, 11, SEP, 12, SEP], [13, 14, SEP], [15, SEP]
    for longest, packing, expected in (
        (8, "complete", [first, second + third]),
        (9, "complete", [first + second, third]),
        (9, "complete_doc", [first, second, third]),
    ):
        assert [b.tolist() for b in pack(texts, longest, packing, VOCABULARY)] == [[CLS, *block] for block in expected]


def test_a_sentence_longer_than_a_block_is_split_and_empty_ones_are_dropped():
    texts = [[np.array([], dtype=np.uint16), np.arange(10, 17, dtype=np.uint16)], []]
    packed = pack(texts, 5, "complete", VOCABULARY)
    assert [b.tolist() for b in packed] == [[CLS, 10, 11, 12, SEP], [CLS, 13, 14, 15, SEP], [CLS, 16, SEP]]
    assert all(b.dtype == np.int64 for b in packed)
    assert pack([], 5, "complete", VOCABULARY) == []


@given(MANY_DOCUMENTS, st.integers(3, 24), st.sampled_from(["complete", "complete_doc"]))
def test_packing_neither_loses_nor_repeats_a_token(texts, max_tokens, packing):
    packed = pack(texts, max_tokens, packing, VOCABULARY)
    tokens = [token for block in packed for token in block.tolist() if token not in (CLS, SEP)]
    assert tokens == [token for document in texts for sentence in document for token in sentence.tolist()]
    for block in packed:
        assert 3 <= len(block) <= max_tokens
        assert block[0] == CLS
        assert block[-1] == SEP
        assert (block == CLS).sum() == 1


@given(MANY_DOCUMENTS, st.integers(22, 40))
def test_sentences_that_fit_a_block_stay_whole(texts, max_tokens):
    packed = pack(texts, max_tokens, "complete", VOCABULARY)
    parts = [part for b in packed for part in np.split(b[1:], np.flatnonzero(b[1:] == SEP) + 1) if len(part)]
    sentences = [sentence.tolist() for document in texts for sentence in document if len(sentence)]
    assert [part[:-1].tolist() for part in parts] == sentences


@given(MANY_DOCUMENTS, st.integers(3, 24))
def test_complete_doc_is_each_document_packed_alone(texts, max_tokens):
    together = pack(texts, max_tokens, "complete_doc", VOCABULARY)
    alone = [b for text in texts for b in pack([text], max_tokens, "complete", VOCABULARY)]
    assert [b.tolist() for b in together] == [b.tolist() for b in alone]


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "width"), [((3, 9), 64, 16), ((8,), 64, 8), ((9,), 13, 13), ((13,), 13, 13)]
)
def test_rows_are_padded_to_a_multiple_of_eight_below_the_limit(lengths, max_tokens, width):
    rows = [np.arange(5, 5 + n) for n in lengths]
    ids, mask = pad(rows, max_tokens, VOCABULARY.pad)
    assert ids.shape == mask.shape == (len(rows), width)
    assert mask.sum(1).tolist() == list(lengths)
    for row, padded, real in zip(rows, ids, mask, strict=True):
        assert padded[real].tolist() == row.tolist()
        assert (padded[~real] == VOCABULARY.pad).all()


def test_flat_lists_are_filled_up():
    assert pad_flat([np.array([4, 5]), np.array([6])], 5, -100).tolist() == [4, 5, 6, -100, -100]


def test_examples_are_always_spread_in_the_same_order():
    order = spread(range(1000))
    assert order == spread(range(1000))
    assert sorted(order) == list(range(1000))
    assert sum(abs(a - b) == 1 for a, b in zip(order, order[1:], strict=False)) < 10
    assert spread([]) == []


@given(st.lists(st.integers(0, 12), max_size=6), st.integers(1, 5))
def test_sentences_hold_all_tokens_in_order_and_are_neither_empty_nor_too_long(lengths, longest):
    (document,) = documents(lengths)
    texts, context = sentences(document, longest)
    assert context == 0
    assert all(0 < len(s) <= longest for s in texts)
    assert np.array_equal(np.concatenate([[], *texts]), np.concatenate([[], *document]))
    assert [len(s) for s in texts] == [min(longest, n - start) for n in lengths for start in range(0, n, longest)]


def test_headings_are_left_out_and_context_sentences_are_counted():
    segments = [np.array([i] * n) for i, n in enumerate([1, 3, 0, 2, 1])]
    texts, context = sentences(Text(segments, headings=(0, 3), context=2), 2)
    assert [text.tolist() for text in texts] == [[1, 1], [1], [4]]
    assert context == 2
    assert sentences(Text(segments, context=5), 9)[1] == 4


def test_data_without_sentence_boundaries_is_refused():
    undivided = documents(*[[9]] * (ENOUGH - 1), [0, 4, 0])
    with pytest.raises(ValueError, match=f"none of {ENOUGH} documents in a row has two sentences"):
        check_boundaries(undivided)
    check_boundaries(undivided[1:])  # so few documents may lack them by chance
    check_boundaries(documents(*[[9]] * ENOUGH, [4, 4]))
