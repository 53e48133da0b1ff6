"""Texts become the arrays that encoders read: framed, truncated at either end, in chunks, in pairs."""

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from models.batching.framing import ChunkFraming, Framing, PairFraming
from models.batching.packing import text_tokens
from tests.models.tiny import VOCABULARY

CLS, SEP, PAD, MASK = VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.pad, VOCABULARY.mask
TEXTS = [np.array(text, np.uint16) for text in ([], [7], [7, 8, 9, 10, 11, 12])]


def rows(arrays: dict[str, np.ndarray]) -> list[list[int]]:
    """The tokens of every input."""
    return [ids[mask].tolist() for ids, mask in zip(arrays["ids"], arrays["mask"], strict=True)]


@pytest.mark.parametrize(("kept", "long"), [("start", [7, 8, 9]), ("end", [10, 11, 12])])
def test_a_longer_text_loses_one_end(kept: str, long: list[int]) -> None:
    framing = Framing(VOCABULARY, 5, kept)  # type: ignore[arg-type]
    arrays = framing.arrays(TEXTS)
    assert rows(arrays) == [[CLS, SEP], [CLS, 7, SEP], [CLS, *long, SEP]]
    assert (arrays["ids"][~arrays["mask"]] == PAD).all()
    assert framing.cut(TEXTS[2]).tolist() == long
    assert framing.cut(TEXTS[0]).tolist() == []


@given(
    st.lists(st.lists(st.integers(5, 39), max_size=20), min_size=1, max_size=5), st.integers(3, 8), st.integers(1, 4)
)
def test_chunks_hold_the_text_in_order(texts: list[list[int]], most: int, chunks: int) -> None:
    framing = ChunkFraming(VOCABULARY, most, chunks=chunks)
    arrays = framing.arrays([np.array(text, np.uint16) for text in texts])
    assert arrays["ids"].shape == arrays["mask"].shape
    for text, ids, mask in zip(texts, arrays["ids"], arrays["mask"], strict=True):
        pieces = [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)]
        real = [piece for piece in pieces if piece != [CLS]]
        assert pieces[: len(real)] == real  # missing chunks come last
        assert len(real) >= 1
        assert [token for piece in real for token in piece[1:-1]] == text[: chunks * (most - 2)]
        assert framing.cut(np.array(text)).tolist() == text[: chunks * (most - 2)]


def test_pairs_are_cut_each_by_itself_and_the_document_has_type_1() -> None:
    framing = PairFraming(Framing(VOCABULARY, 4, "end"), Framing(VOCABULARY, 6))
    arrays = framing.arrays([TEXTS[2], TEXTS[0]], [TEXTS[2], TEXTS[1]])
    assert rows(arrays) == [[CLS, 11, 12, SEP, 7, 8, 9, 10, SEP], [CLS, SEP, 7, SEP]]
    assert arrays["types"].tolist() == [[0] * 4 + [1] * 5, [0, 0, 1, 1] + [0] * 5]
    query, document = framing.cut(TEXTS[2], TEXTS[2])
    assert (query.tolist(), document.tolist()) == ([11, 12], [7, 8, 9, 10])


def pair(query: int, document: int) -> tuple[np.ndarray, np.ndarray]:
    """A query of tokens 10, 11, ... and a document of tokens 25, 26, ..."""
    return np.arange(10, 10 + query), np.arange(25, 25 + document)


@pytest.mark.parametrize("separators", [1, 2])
@given(query=st.integers(0, 14), document=st.integers(0, 14), most=st.integers(8, 34))
def test_a_pair_is_cut_as_hugging_faces_tokenizers_cut_it(
    separators: int, query: int, document: int, most: int
) -> None:
    library = tokenizers.Tokenizer(models.WordLevel({str(i): i for i in range(VOCABULARY.vocab_size)}))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ids = [(str(CLS), CLS), (str(SEP), SEP)]
    library.post_processor = processors.TemplateProcessing(
        pair=[str(CLS), "$A", *[str(SEP)] * separators, "$B:1", f"{SEP}:1"], special_tokens=ids
    )
    library.enable_truncation(most, strategy="longest_first")
    texts = pair(query, document)
    theirs = library.encode(*(" ".join(map(str, text)) for text in texts))
    framing = PairFraming(Framing(VOCABULARY, 34), Framing(VOCABULARY, 34), separators, most)
    arrays = framing.arrays(*([text] for text in texts))
    assert rows(arrays) == [theirs.ids]
    assert arrays["types"][0, : len(theirs.ids)].tolist() == theirs.type_ids
    assert len(theirs.ids) == sum(map(len, framing.cut(*texts))) + framing.frame
    assert arrays["ids"].shape[1] <= framing.longest


def test_what_frames_a_text_is_not_counted() -> None:
    added = VOCABULARY.vocab_size + 1
    assert text_tokens([np.array([[CLS, 7, 8, SEP, PAD], [CLS, added, 9, SEP, MASK]])], VOCABULARY) == 3
