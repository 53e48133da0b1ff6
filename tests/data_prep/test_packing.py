import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep import chunk, packing
from data_prep.chunk import decode
from data_prep.errors import InputError
from data_prep.packing import TokenizedDocument

IDS = np.dtype(np.uint16)
HERE = Path("here")
SEGMENTS = st.lists(st.lists(st.integers(0, 75), max_size=5).map(lambda ids: np.array(ids, IDS)), max_size=4)


@st.composite
def tokenized(draw: st.DrawFn) -> TokenizedDocument:
    segments = draw(SEGMENTS)
    headings = draw(st.sets(st.integers(0, len(segments) - 1))) if segments else set()
    key, context = draw(st.integers(0, (1 << 64) - 1)), draw(st.integers(0, len(segments)))
    return TokenizedDocument(draw(st.text(max_size=5)), segments, key, tuple(sorted(headings)), context)


def plain(document: TokenizedDocument) -> tuple[Any, ...]:
    segments = [segment.tolist() for segment in document.segments]
    return document.id, segments, document.key, document.headings, document.context


@given(st.lists(tokenized(), max_size=8), st.integers(1, 12))
def test_all_that_is_known_of_documents_survives(documents: list[TokenizedDocument], chunk_tokens: int) -> None:
    found = []
    for packed in packing.chunks(documents, IDS, chunk_tokens, HERE):
        contents = decode(packed.npz, 100, IDS)
        inside = list(packing.documents(contents, json.loads(packed.json)))
        assert (packed.documents, packed.segments) == (len(inside), sum(len(one.segments) for one in inside))
        assert packed.tokens == sum(len(segment) for one in inside for segment in one.segments)
        assert sum(len(segment) for one in inside[:-1] for segment in one.segments) < chunk_tokens
        found += inside
    assert list(map(plain, found)) == list(map(plain, documents))


@given(st.lists(tokenized(), min_size=1, max_size=6))
def test_a_shard_is_the_same_bytes_each_time(documents: list[TokenizedDocument]) -> None:
    chunks = list(packing.chunks(documents, IDS, 5, HERE))
    with tempfile.TemporaryDirectory() as folder:
        one, other = (packing.write_shard(Path(folder) / name, 7, chunks) for name in "ab")
        assert one.sha256 == other.sha256
        assert (one.chunks, one.documents) == (len(chunks), len(documents))
        assert (Path(folder) / "a").read_bytes() == (Path(folder) / "b").read_bytes()
        assert b"000007000000.npz" in (Path(folder) / "a").read_bytes()


def test_no_documents_are_no_chunks() -> None:
    assert list(packing.chunks([], IDS, 5, HERE)) == []


def test_only_what_is_known_of_some_document_is_listed() -> None:
    segments = [np.array([1], IDS)] * 2
    bare = TokenizedDocument("a", segments)
    assert json.loads(packing.encode_chunk([bare], IDS, HERE).json) == {"documents": ["a"]}
    full = TokenizedDocument("b", segments, 255, (1,), 1)
    assert json.loads(packing.encode_chunk([TokenizedDocument("a", segments, 0), full], IDS, HERE).json) == {
        "documents": ["a", "b"],
        "keys": ["0000000000000000", "00000000000000ff"],
        "headings": [[], [1]],
        "context": [0, 1],
    }


def test_a_chunk_too_large_to_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "LARGEST", 1000)
    with pytest.raises(InputError, match="here: the chunk with document a+ has over 1,000 bytes: make chunks of fewer"):
        list(packing.chunks([TokenizedDocument("a" * 1000, [])], IDS, 5, HERE))


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"documents": ["a"]}, "have no keys"),
        ({"documents": ["a"], "keys": []}, "another length"),
        ({"documents": ["a", "b"], "keys": ["0" * 16]}, "another length"),
        ({"documents": ["a"], "keys": "0"}, "have no keys"),
        ({"documents": ["a"], "keys": ["0" * 16], "headings": {}}, "another length"),
        ({"documents": ["a"], "keys": ["0" * 16], "context": 1}, "another length"),
        ({"documents": ["a"], "keys": ["0" * 15]}, "'000000000000000' is no key"),
        ({"documents": ["a"], "keys": [7]}, "7 is no key"),
        ({"documents": ["a"], "keys": ["-" + "0" * 15]}, "is no key"),
        ({"documents": ["a"], "keys": ["0" * 16], "context": [3]}, "3 is no number of segments"),
        ({"documents": ["a"], "keys": ["0" * 16], "context": [-1]}, "-1 is no number of segments"),
        ({"documents": ["a"], "keys": ["0" * 16], "context": [True]}, "True is no number of segments"),
        ({"documents": ["a"], "keys": ["0" * 16], "headings": [[2]]}, r"\[2\] are no headings"),
        ({"documents": ["a"], "keys": ["0" * 16], "headings": [0]}, "0 are no headings"),
    ],
)
def test_provenance_that_nobody_would_have_written_is_refused(known: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(packing.documents([[np.array([1], IDS)] * 2], known))


@pytest.mark.parametrize(
    ("document", "whole"),
    [
        ("book.txt", "book.txt"),
        ("book.txt#12", "book.txt"),
        ("C# for all", "C# for all"),
        ("reddit/t3_a", "reddit/t3_a"),
        ("reddit/t3_a/t1_b", "reddit/t3_a"),
        ("reddit/t3_a/t1_b#2", "reddit/t3_a"),
        ("other/t3_a/t1_b", "other/t3_a/t1_b"),
    ],
)
def test_what_a_document_is_a_part_of(document: str, whole: str) -> None:
    assert packing.whole(document) == whole
