import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.batching.packing import frame
from deepsiam.models.batching.sentences import ENOUGH, check_boundaries, sentences
from tests.models.tiny import VOCABULARY, Text, documents


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


def test_a_text_is_framed():
    framed = frame(np.array([7, 8], dtype=np.uint16), VOCABULARY)
    assert framed.tolist() == [VOCABULARY.cls, 7, 8, VOCABULARY.sep]
    assert framed.dtype == np.int64
