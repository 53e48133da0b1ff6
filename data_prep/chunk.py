"""One sample of a shard: some consecutive documents as the bytes of an `.npz` without pickles."""

import io
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

TokenDocument = list[np.ndarray]  # the segments of a document: token ids, uint16 or uint32, maybe none

OFFSET = np.dtype("<u4")
MEMBERS = ("ids", "segments", "documents")


def encode(documents: Sequence[TokenDocument], id_type: np.dtype) -> bytes:
    """The bytes of an .npz; the same documents give the same bytes.

    It holds `ids` (id_type), `segments` (uint32 end offsets into ids) and `documents` (uint32 end offsets
    into segments). np.savez stores without compression and dates every member 1980-01-01.
    """
    segments = [segment for document in documents for segment in document]
    ids = np.concatenate(segments) if segments else np.empty(0)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        ids=ids.astype(id_type.newbyteorder("<")),
        segments=np.cumsum([len(segment) for segment in segments], dtype=np.int64).astype(OFFSET),
        documents=np.cumsum([len(document) for document in documents], dtype=np.int64).astype(OFFSET),
    )
    return buffer.getvalue()


def decode(content: bytes, vocab_size: int, id_type: np.dtype) -> list[TokenDocument]:
    """The documents of an .npz written by `encode`; their segments are read-only views of `content`'s ids.

    Nothing is unpickled, and nothing larger than `content` is allocated for an array.

    Raises:
        ValueError: what `encode` would not have written, with the reason.
    """
    arrays = _read_arrays(content)
    ids, segments, documents = (arrays[name] for name in MEMBERS)
    if ids.dtype != id_type.newbyteorder("<"):
        raise ValueError(f"ids are {ids.dtype}, not {id_type}")
    for name, ends, total in [("segments", segments, len(ids)), ("documents", documents, len(segments))]:
        if ends.dtype != OFFSET:
            raise ValueError(f"{name} are {ends.dtype}, not {OFFSET}")
        if np.any(ends[1:] < ends[:-1]):
            raise ValueError(f"{name} has end offsets that decrease")
        if (int(ends[-1]) if len(ends) else 0) != total:
            raise ValueError(f"{name} does not end at {total}")
    if len(ids) and int(ids.max()) >= vocab_size:
        raise ValueError(f"token id {ids.max()} is beyond the vocabulary of {vocab_size}")
    pieces = _cut(ids, segments)
    return _cut(pieces, documents)


def _cut(items: Any, ends: np.ndarray) -> list[Any]:
    """The runs of a sliceable sequence that end at `ends`."""
    stops = ends.tolist()
    return [items[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if sorted(members) != sorted(f"{name}.npy" for name in MEMBERS):
                raise ValueError(f"the npz holds {sorted(members)}, not {', '.join(MEMBERS)}")
            if any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
                raise ValueError("the npz is compressed")
            return {name: _read_array(name, archive.read(f"{name}.npy")) for name in MEMBERS}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"not a readable npz ({error})") from error


def _read_array(name: str, member: bytes) -> np.ndarray:
    file = io.BytesIO(member)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is not a version 1.0 npy")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or dtype.kind != "u":
        raise ValueError(f"{name} holds {dtype}, not unsigned integers")
    payload = len(member) - file.tell()
    if len(shape) != 1 or shape[0] * dtype.itemsize != payload:
        raise ValueError(f"{name} claims shape {shape} of {dtype} in {payload} bytes")
    return np.frombuffer(member, dtype, offset=file.tell())
