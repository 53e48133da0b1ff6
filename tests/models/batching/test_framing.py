"""Texts become the arrays that encoders read: framed, truncated at either end, in chunks, in pairs."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from deepsiam.data_prep.tokenizers.prompt import Prompt
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer, load
from deepsiam.models.batching.framing import ChunkFraming, DuelFraming, Framing, PairFraming
from deepsiam.models.batching.packing import frame, text_tokens
from tests.data_prep.tokenizers.families import FAMILIES, odd_strings
from tests.models.tiny import VOCABULARY

CLS, SEP, PAD, MASK = VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.pad, VOCABULARY.mask
TEXTS = [np.array(text, np.uint16) for text in ([], [7], [7, 8, 9, 10, 11, 12])]

PROMPT = VOCABULARY.prompt("ab")
P1, P2 = PROMPT.ids


def rows(arrays: dict[str, np.ndarray]) -> list[list[int]]:
    """The tokens of every input."""
    return [ids[mask].tolist() for ids, mask in zip(arrays["ids"], arrays["mask"], strict=True)]


@pytest.mark.parametrize("prompt", [None, PROMPT], ids=["alone", "after a prompt"])
@pytest.mark.parametrize(("kept", "long"), [("start", [7, 8, 9]), ("end", [10, 11, 12])])
def test_a_longer_text_loses_one_end(kept: str, long: list[int], prompt: Prompt | None) -> None:
    before = [CLS, *(prompt.ids if prompt else ())]
    framing = Framing(VOCABULARY, len(before) + 4, kept, prompt)  # type: ignore[arg-type]
    arrays = framing.arrays(TEXTS)
    assert rows(arrays) == [[*before, SEP], [*before, 7, SEP], [*before, *long, SEP]]
    assert (arrays["ids"][~arrays["mask"]] == PAD).all()
    assert [framing.cut(text).tolist() for text in TEXTS] == [[], [7], long]
    assert framing.room == 3
    assert "kept" not in arrays


def test_the_text_and_what_follows_count_without_the_prompt() -> None:
    arrays = Framing(VOCABULARY, 7, prompt=PROMPT, pools_prompt=False).arrays(TEXTS)
    counted = [ids[kept].tolist() for ids, kept in zip(arrays["ids"], arrays["kept"], strict=True)]
    assert counted == [[SEP], [7, SEP], [7, 8, 9, SEP]]
    assert "kept" not in Framing(VOCABULARY, 7, pools_prompt=False).arrays(TEXTS)  # there is no prompt


def test_every_chunk_has_the_prompt() -> None:
    arrays = ChunkFraming(VOCABULARY, 7, prompt=PROMPT, pools_prompt=False, chunks=2).arrays(TEXTS[1:])
    ids, masks = arrays["ids"].reshape(4, 7), (arrays[name].reshape(4, 7) for name in ("mask", "kept"))
    pieces, counted = ([row[of].tolist() for row, of in zip(ids, mask, strict=True)] for mask in masks)
    assert pieces == [[CLS, P1, P2, 7, SEP], [CLS], [CLS, P1, P2, 7, 8, 9, SEP], [CLS, P1, P2, 10, 11, 12, SEP]]
    assert counted == [[7, SEP], [CLS], [7, 8, 9, SEP], [10, 11, 12, SEP]]


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


@pytest.mark.parametrize(("kept", "long"), [("start", [7, 8, 9]), ("end", [10, 11, 12])])
def test_a_pair_that_is_too_long_keeps_the_same_end_of_the_query(kept: str, long: list[int]) -> None:
    framing = PairFraming(Framing(VOCABULARY, 7, kept), Framing(VOCABULARY, 8), max_tokens=9)  # type: ignore[arg-type]
    query, document = framing.cut(TEXTS[2], TEXTS[2])
    assert (query.tolist(), document.tolist()) == (long, [7, 8, 9])


def pair(query: int, document: int) -> tuple[np.ndarray, np.ndarray]:
    """A query of tokens 10, 11, ... and a document of tokens 25, 26, ..."""
    return np.arange(10, 10 + query), np.arange(25, 25 + document)


@pytest.mark.parametrize("separators", [1, 2])
@given(query=st.integers(0, 14), document=st.integers(0, 14), most=st.integers(7, 34), alone=st.sampled_from([0, 34]))
def test_a_pair_is_cut_as_hugging_faces_tokenizers_cut_it(
    separators: int, query: int, document: int, most: int, alone: int
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
    single = Framing(VOCABULARY, max(most, alone))  # a text may be longer than the whole pair
    framing = PairFraming(single, single, separators, most)
    arrays = framing.arrays(*([text] for text in texts))
    assert rows(arrays) == [theirs.ids]
    assert arrays["types"][0, : len(theirs.ids)].tolist() == theirs.type_ids
    assert len(theirs.ids) == sum(map(len, framing.cut(*texts))) + framing.frame
    assert arrays["ids"].shape[1] <= framing.longest


def test_what_frames_a_text_is_not_counted() -> None:
    added = VOCABULARY.vocab_size + 1
    assert text_tokens([np.array([[CLS, 7, 8, SEP, PAD], [CLS, added, 9, SEP, MASK]])], VOCABULARY) == 3


def of_family(name: str, folder: Path) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Our tokenizer of a family, and the library's."""
    path = FAMILIES[name].write(folder) / "tokenizer.json"
    return load(path), tokenizers.Tokenizer.from_file(str(path))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("most", [3, 8])
def test_inputs_are_those_of_each_familys_tokenizer(name: str, most: int, tmp_path: Path) -> None:
    """Cut as the library cuts; an input without any token becomes padding, which is read."""
    own, library = of_family(name, tmp_path)
    texts = odd_strings(120)
    library.enable_truncation(most)
    expected = [encoding.ids or [own.pad] for encoding in library.encode_batch(texts)]
    framing = Framing(own, most)
    assert rows(framing.arrays(own.encode(texts))) == expected
    assert [frame(text, own, most).tolist() for text in own.encode(texts)] == expected
    library.enable_truncation(2 * most, strategy="longest_first")
    pairs = PairFraming(Framing(own, 10**4), Framing(own, 10**4), None, 2 * most)
    arrays = pairs.arrays(own.encode(texts), own.encode(texts[::-1]))
    theirs = library.encode_batch(list(zip(texts, texts[::-1], strict=True)))
    assert rows(arrays) == [encoding.ids or [own.pad] for encoding in theirs]
    counted = text_tokens([arrays["ids"]], own)
    special = [token for token in (*own.special,) if token != own.unk]
    assert counted == sum(int((~np.isin(encoding.ids, special)).sum()) for encoding in theirs)


@pytest.mark.parametrize("name", FAMILIES)
def test_chunks_and_duels_are_framed_alike(name: str, tmp_path: Path) -> None:
    own, _ = of_family(name, tmp_path)
    (before, after), (start, between, end) = own.text_frame, own.pair_frame
    text = np.arange(20, 34)
    most = 5 + len(before) + len(after)
    for n, sizes in ((14, [5, 5, 4]), (11, [5, 5, 1] if before or after else [5, 5]), (0, [0])):
        arrays = ChunkFraming(own, most, chunks=3).arrays([text[:n], text])
        pieces = np.split(text[: sum(sizes)], np.cumsum(sizes)[:-1])
        real = [[*before, *piece, *after] or [own.pad] for piece in pieces]
        own_rows = [ids[keep].tolist() for ids, keep in zip(arrays["ids"][0], arrays["mask"][0], strict=True)]
        assert own_rows[: len(real)] == real
        assert all(len(row) == 1 for row in own_rows[len(real) :])
        assert all(len(row) > 1 for row in own_rows[1 : len(real)])
    query, first, second = text[:3], text[3:6], text[6:9]
    duel = DuelFraming(Framing(own, 99), Framing(own, 99), 24).arrays([query], [first], [second])
    assert rows(duel) == [[*start, *query, *between, *first, *between, *second, *end]]
    types = [*[0] * (len(start) + 3 + len(between)), *[1] * (3 + len(between)), *[2] * (3 + len(end))]
    assert duel["types"][0, : len(types)].tolist() == types
    cut = DuelFraming(Framing(own, 99), Framing(own, 99), 24).cut(text[:4], text)
    assert [len(part) for part in cut] == [4, (20 - len(start) - 2 * len(between) - len(end)) // 2]
