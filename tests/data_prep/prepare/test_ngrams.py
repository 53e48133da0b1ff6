import json
import re
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import ngrams
from deepsiam.data_prep.text.characters import visible

WORDS = (b"the", b"quick", b"fox")
NONE = np.empty(0, np.uint64)

SOME_WORDS = ["The", "the", "FOX", "fox", "straße", "STRASSE", "été", "7", "_", "--", "’s"]
few_words = st.lists(st.sampled_from(SOME_WORDS), max_size=12).map(" ".join)


def naive(text: str, n: int) -> list[tuple[str, ...]]:
    words = re.findall(r"\w+", visible(text).casefold())
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


def collection(folder: Path, documents: list[tuple[str, str]], queries: list[str]) -> Path:
    folder.mkdir()
    corpus = [{"_id": str(i), "title": title, "text": text} for i, (title, text) in enumerate(documents)]
    asked = [{"_id": str(i), "text": text} for i, text in enumerate(queries)]
    for name, records in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@given(few_words | st.text(), few_words | st.text(), st.integers(1, 4))
def test_hashes_are_equal_where_the_words_are(a: str, b: str, n: int) -> None:
    hashed = [ngrams.hashes(text, n) for text in (a, b)]
    expected = [naive(text, n) for text in (a, b)]
    assert [array.dtype for array in hashed] == [np.uint64, np.uint64]
    assert [len(array) for array in hashed] == [len(grams) for grams in expected]
    every, known = np.concatenate(hashed), sum(expected, [])
    assert [[x == y for y in every] for x in every] == [[x == y for y in known] for x in known]
    table = np.unique(hashed[1])
    assert ngrams.shares(hashed[0], table) == bool(set(expected[0]) & set(expected[1]))


def test_the_order_of_words_counts() -> None:
    assert len(np.unique(np.concatenate([ngrams.hashes(text, 3) for text in ("a b c", "c b a", "b a c")]))) == 3
    assert len(ngrams.hashes("one two three", 3)) == 1
    assert len(ngrams.hashes("one two", 3)) == len(ngrams.hashes("", 3)) == 0


def test_hashes_are_the_polynomials_they_are_said_to_be() -> None:
    """So they do not depend on a process's seed for hashing strings."""
    first, second, third = (int.from_bytes(blake2b(word, digest_size=8).digest(), "little") for word in WORDS)
    base = int(ngrams._BASE)
    expected = [(first * base + second) % 2**64, (second * base + third) % 2**64]
    assert ngrams.hashes("The quick fox.", 2).tolist() == expected


def test_a_word_has_a_bounded_length() -> None:
    assert len(ngrams.words("x" * (3 * ngrams.LONGEST_WORD + 1))) == 4


def test_tables_of_every_size_are_searched() -> None:
    low, high = np.uint64(0), np.uint64(2**64 - 1)
    for table in (np.array([5], np.uint64), np.array([low, high])):
        for x in (0, 4, 5, 6, 2**64 - 1):
            assert ngrams.shares(np.array([x], np.uint64), table) == (x in table.tolist())
        assert not ngrams.shares(NONE, table)
    assert not ngrams.shares(np.array([low]), NONE)


def test_collections_give_their_documents_titles_and_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = collection(tmp_path / "one", [("Foxes", "jump over the dogs"), ("", "it is so")], ["why do foxes jump"])
    two = collection(tmp_path / "two", [("", "Foxes jump over e\u0301te\u0301")], ["short"])
    texts = ["Foxes jump over the dogs", "it is so", "why do foxes jump", "Foxes jump over été"]
    expected = np.unique(np.concatenate([ngrams.hashes(text, 3) for text in texts]))
    for batch in (1, 2, 4096):
        monkeypatch.setattr(ngrams, "BATCH", batch)
        np.testing.assert_array_equal(ngrams.of_collections([one, str(two)], 3), expected)
    assert len(expected) == 3 + 1 + 2 + 1
    assert ngrams.of_collections([two], 9).tolist() == ngrams.of_collections([], 3).tolist() == []


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    folder = collection(tmp_path / "beir", [("", "it is so")], ["is it so"])
    with pytest.raises(InputError, match="nowhere: no such folder"):
        ngrams.of_collections([folder, tmp_path / "nowhere"], 2)
    (folder / "queries.jsonl").write_text('{"_id": "a", "text": "is it so"}\n{"_id": "b"')
    with pytest.raises(InputError, match=r"beir/queries\.jsonl:2: not JSON"):
        ngrams.of_collections([folder], 2)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"beir/queries\.jsonl: cannot read"):
        ngrams.of_collections([folder], 2)
