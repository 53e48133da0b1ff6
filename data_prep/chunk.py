"""One sample of a shard: some consecutive documents as the bytes of an `.npz` without pickles.

Of an .npz no more is understood than np.savez writes for three rows of unsigned integers: nothing is unpickled,
inflated or evaluated. Decoding takes at most 100 times the chunk's bytes (a chunk of nothing but empty segments:
an array object for every 4 bytes) and a chunk has at most LARGEST bytes, so under 1 GiB.
"""

import io
import re
import reprlib
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

TokenDocument = list[np.ndarray]  # the segments of a document: token ids, uint16 or uint32, maybe none

OFFSET = np.dtype("<u4")
MEMBERS = ("ids", "segments", "documents")
LARGEST = 1 << 23  # bytes of a chunk or its provenance: 60 times the usual; a longer one is neither written nor read
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(<u[24])', 'fortran_order': False, 'shape': \((\d{1,9}),\), \} *\n", re.DOTALL
)


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

    Raises:
        ValueError: what `encode` would not have written, with the reason.
    """
    ids, segments, documents = _read_arrays(content, (id_type.newbyteorder("<"), OFFSET, OFFSET))
    for name, ends, total in [("segments", segments, len(ids)), ("documents", documents, len(segments))]:
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


def _read_arrays(content: bytes, dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names, stored = archive.namelist(), {info.compress_type for info in archive.infolist()}
            if sorted(names) != sorted(f"{name}.npy" for name in MEMBERS):
                raise ValueError(f"the npz holds {reprlib.repr(names)}, not {', '.join(MEMBERS)}")
            if stored != {zipfile.ZIP_STORED}:
                raise ValueError("the npz is compressed")
            return [
                _read_array(name, archive.read(f"{name}.npy"), dtype)
                for name, dtype in zip(MEMBERS, dtypes, strict=True)
            ]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, OverflowError) as error:
        raise ValueError(f"not a readable npz ({error})") from error


def _read_array(name: str, member: bytes, dtype: np.dtype) -> np.ndarray:
    header = HEADER.match(member)
    if not header or header[1].decode() != dtype.str:
        raise ValueError(f"{name} is no row of {dtype} ({member[10:80]!r})")
    payload = len(member) - header.end()
    if int(header[2]) * dtype.itemsize != payload:
        raise ValueError(f"{name} claims {int(header[2])} of {dtype} in {payload} bytes")
    return np.frombuffer(member, dtype, offset=header.end())
