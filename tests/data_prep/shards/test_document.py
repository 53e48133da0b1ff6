"""Documents as JSON, chunks of a shard, and their packing: what is written is read back, damage is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.shards import chunk, packing
from deepsiam.data_prep.shards.chunk import decode
from deepsiam.data_prep.shards.document import TokenDocument, from_json, to_json
from tests.data_prep import forge
from tests.data_prep.forge import npz

IDS = np.dtype(np.uint16)
DRAWN_SEGMENTS = st.lists(st.lists(st.integers(0, 75), max_size=5).map(lambda ids: np.array(ids, IDS)), max_size=4)


@st.composite
def drawn_documents(draw: st.DrawFn) -> TokenDocument:
    segments = draw(DRAWN_SEGMENTS)
    headings = draw(st.sets(st.integers(0, len(segments) - 1))) if segments else set()
    return TokenDocument(
        segments,
        draw(st.text(max_size=5)),
        draw(st.sampled_from(["", "book", "thread"])),
        tuple(sorted(headings)),
        draw(st.integers(0, len(segments))),
        draw(st.integers(0, (1 << 64) - 1)),
    )


def plain(document: TokenDocument) -> tuple[Any, ...]:
    """Return all attributes in comparable form, with the group that a reader sees."""
    segments = [segment.tolist() for segment in document.segments]
    group = document.group or document.id
    return document.id, group, segments, document.headings, document.context, document.key


SEGMENTS = [np.array([1], np.uint16)] * 2
KEY = "0" * 16


def test_only_attributes_that_a_document_has_are_stored() -> None:
    for bare in (TokenDocument(SEGMENTS, "a"), TokenDocument(SEGMENTS, "a", "a")):
        assert json.loads(to_json([bare])) == {"documents": ["a"]}
    (document,) = from_json(b'{"documents": ["a"]}', [SEGMENTS])
    assert (document.group, document.key) == ("a", None)
    full = TokenDocument(SEGMENTS, "b", "book", (1,), 1, 255)
    assert json.loads(to_json([TokenDocument(SEGMENTS, "a", key=0), full])) == {
        "documents": ["a", "b"],
        "groups": ["a", "book"],
        "keys": [KEY, "00000000000000ff"],
        "headings": [[], [1]],
        "context": [0, 1],
    }


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        *((content, "its .json is not JSON") for content in (b"{", b"\xff", b"[" * 100_000)),
        ([], "is not an object"),
        ({}, "no list 'documents' of 1 items"),
        ({"documents": []}, "no list 'documents' of 1 items"),
        ({"documents": ["a", "b"]}, "no list 'documents' of 1 items"),
        ({"documents": [1]}, "lists 1 among the documents"),
        ({"documents": ["a"], "groups": "a"}, "no list 'groups'"),
        ({"documents": ["a"], "groups": []}, "no list 'groups'"),
        ({"documents": ["a"], "groups": [["a"]]}, r"lists \['a'\] among the groups"),
        ({"documents": ["a"], "keys": []}, "no list 'keys'"),
        ({"documents": ["a"], "keys": "0"}, "no list 'keys'"),
        ({"documents": ["a"], "keys": ["0" * 15]}, "lists '000000000000000' among the keys"),
        ({"documents": ["a"], "keys": [7]}, "lists 7 among the keys"),
        ({"documents": ["a"], "keys": ["-" + "0" * 15]}, "among the keys"),
        ({"documents": ["a"], "headings": {}}, "no list 'headings'"),
        ({"documents": ["a"], "headings": [[2]]}, "more segments than the 2 of a document"),
        ({"documents": ["a"], "headings": [[1, 0]]}, r"lists the headings \[1, 0\] of a document out of order"),
        ({"documents": ["a"], "headings": [[-1]]}, r"lists \[-1\] among the headings"),
        ({"documents": ["a"], "headings": [0]}, "lists 0 among the headings"),
        ({"documents": ["a"], "context": 1}, "no list 'context'"),
        ({"documents": ["a"], "context": [3]}, "more segments than the 2 of a document"),
        ({"documents": ["a"], "context": [-1]}, "lists -1 among the context"),
        ({"documents": ["a"], "context": [True]}, "lists True among the context"),
    ],
)
def test_json_that_cannot_belong_to_the_segments_is_refused(columns: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(columns if isinstance(columns, bytes) else json.dumps(columns).encode(), [SEGMENTS])


UINT16, UINT32 = np.dtype(np.uint16), np.dtype(np.uint32)


def good(**other: object) -> dict[str, np.ndarray]:
    arrays = {
        "ids": np.array([5, 6, 7], UINT16),
        "segments": np.array([2, 3], UINT32),
        "documents": np.array([1, 2], UINT32),
    }
    return {**arrays, **other}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a readable npz"),
        (npz(**good())[:-30], "not a readable npz"),
        (npz(**good(ids=np.array([5, 6, 8], UINT16))), "token id 8 is beyond the vocabulary of 8"),
        (npz(**good(ids=np.array([5, "x", None], object))), "ids is not a 1-D array of uint16 .*O"),
        (npz(**good(segments=np.array([2, 3], np.uint64))), "segments is not a 1-D array of uint32 .*<u8"),
        (npz(**good(documents=np.array([1], UINT32))), "documents does not end at 2"),
        (npz(**good(documents=np.array([], UINT32))), "documents does not end at 2"),
        (npz(**good(more=np.array([1]))), "the npz holds"),
        (npz(ids=np.array([5], UINT16)), "the npz holds"),
    ],
)
def test_bytes_that_encode_would_not_write_are_refused(content: bytes, reason: str) -> None:
    """More such bytes are in test_hostile.py."""
    with pytest.raises(ValueError, match=reason):
        chunk.decode(content, 8, UINT16)


@settings(max_examples=30 * settings.default.max_examples)  # few bytes at random are of a header
@given(st.data())
def test_any_damage_decodes_or_raises_value_error(data: st.DataObject) -> None:
    content = bytearray(npz(**good()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = chunk.decode(bytes(content), 8, UINT16)
    except ValueError:
        return
    assert [[segment.tolist() for segment in document] for document in decoded] == [[[5, 6]], [[7]]]


HERE = Path("here")


@given(st.lists(drawn_documents(), max_size=8), st.integers(1, 12))
@example([TokenDocument([np.ones(2, IDS)], id, key=0) for id in "ab"], 2)  # each is a whole chunk
def test_documents_survive_packing_in_chunks_of_a_size(documents: list[TokenDocument], chunk_tokens: int) -> None:
    read = []
    for packed in packing.chunks(documents, IDS, chunk_tokens, HERE):
        inside = from_json(packed.json, decode(packed.npz, 100, IDS))
        assert (packed.documents, packed.segments) == (len(inside), sum(len(document.segments) for document in inside))
        assert packed.tokens == sum(len(segment) for document in inside for segment in document.segments)
        assert sum(len(segment) for document in inside[:-1] for segment in document.segments) < chunk_tokens
        read += inside
    assert list(map(plain, read)) == list(map(plain, documents))


def test_a_shard_has_the_bytes_that_tarfile_wrote_before_webdataset_did(tmp_path: Path) -> None:
    chunks = [packing.Chunk(f"npz {number}".encode() * 200, b"{}", 1, 1, 1) for number in range(3)]
    entry = packing.write_shard(tmp_path / "new", 7, chunks)
    members = [(f"000007{n:06d}.{end}", getattr(c, end)) for n, c in enumerate(chunks) for end in ("npz", "json")]
    forge.pack(tmp_path / "old", members)
    assert (tmp_path / "new").read_bytes() == (tmp_path / "old").read_bytes()
    assert entry.sha256 == sha256_of(tmp_path / "old")
