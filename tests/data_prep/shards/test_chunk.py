import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsiam.data_prep.shards import chunk
from tests.data_prep.forge import npz

UINT16, UINT32 = np.dtype(np.uint16), np.dtype(np.uint32)
DOCUMENTS = st.lists(st.lists(st.lists(st.integers(0, 65535), max_size=5), max_size=4), max_size=5)


def as_lists(documents: list[list[np.ndarray]]) -> list[list[list[int]]]:
    return [[segment.tolist() for segment in document] for document in documents]


def good(**other: object) -> dict[str, np.ndarray]:
    arrays = {
        "ids": np.array([5, 6, 7], UINT16),
        "segments": np.array([2, 3], UINT32),
        "documents": np.array([1, 2], UINT32),
    }
    return {**arrays, **other}  # type: ignore[dict-item]


@given(DOCUMENTS, st.sampled_from([UINT16, UINT32]))
def test_documents_survive_the_round_trip(documents: list[list[list[int]]], id_type: np.dtype) -> None:
    arrays = [[np.array(segment, id_type) for segment in document] for document in documents]
    decoded = chunk.decode(chunk.encode(arrays, id_type), 65536, id_type)
    assert as_lists(decoded) == documents
    assert all(segment.dtype == id_type for document in decoded for segment in document)


def test_no_member_of_the_zip_has_a_timestamp() -> None:
    with zipfile.ZipFile(io.BytesIO(chunk.encode([[np.array([1, 2], UINT16)]], UINT16))) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.namelist() == ["ids.npy", "segments.npy", "documents.npy"]


def test_a_good_chunk_decodes() -> None:
    assert as_lists(chunk.decode(npz(**good()), 8, UINT16)) == [[[5, 6]], [[7]]]


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


def test_a_compressed_npz_is_refused() -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **good(ids=np.zeros(10_000_000, UINT16)))
    with pytest.raises(ValueError, match="compressed"):
        chunk.decode(buffer.getvalue(), 8, UINT16)


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
    assert as_lists(decoded) == [[[5, 6]], [[7]]]
