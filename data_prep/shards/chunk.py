"""The token ids of a chunk (consecutive documents of a shard) as the bytes of an `.npz` without pickles.

The reader accepts only what np.savez writes for three one-dimensional arrays of unsigned integers: it unpickles,
inflates and evaluates nothing. Decoding takes at most 100 times the chunk's bytes (for a chunk of only empty segments:
an array object for every 4 bytes) and a chunk has at most LARGEST bytes, so under 1 GiB.
"""

import io
import re
import reprlib
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

OFFSET = np.dtype("<u4")
MEMBERS = ("ids", "segments", "documents")
LARGEST = 1 << 23  # bytes of a chunk's .npz or .json: 60 times the usual; a larger one is neither written nor read
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(<u[24])', 'fortran_order': False, 'shape': \((\d{1,9}),\), \} *\n", re.DOTALL
)


def encode(documents: Sequence[Sequence[np.ndarray]], id_type: np.dtype) -> bytes:
    """Return documents, each a sequence of segments, as an .npz; the same documents give the same bytes.

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


def decode(content: bytes, vocab_size: int, id_type: np.dtype) -> list[list[np.ndarray]]:
    """Return the segments of each document of an .npz written by `encode`: read-only views of the ids in `content`.

    Raises:
        ValueError: `encode` would not have written this, with the reason.
    """
    ids, segments, documents = _read_arrays(content, (id_type.newbyteorder("<"), OFFSET, OFFSET))
    for name, ends, total in [("segments", segments, len(ids)), ("documents", documents, len(segments))]:
        if np.any(ends[1:] < ends[:-1]):
            raise ValueError(f"{name} has end offsets that decrease")
        if (int(ends[-1]) if len(ends) else 0) != total:
            raise ValueError(f"{name} does not end at {total}")
    if len(ids) and int(ids.max()) >= vocab_size:
        raise ValueError(f"token id {ids.max()} is beyond the vocabulary of {vocab_size}")
    return _cut(_cut(ids, segments), documents)


def _cut(items: Any, ends: np.ndarray) -> list[Any]:
    stops = ends.tolist()
    return [items[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _read_arrays(content: bytes, dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names, compression = archive.namelist(), {info.compress_type for info in archive.infolist()}
            if sorted(names) != sorted(f"{name}.npy" for name in MEMBERS):
                raise ValueError(f"the npz holds {reprlib.repr(names)}, not {', '.join(MEMBERS)}")
            if compression != {zipfile.ZIP_STORED}:
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
        raise ValueError(f"{name} is not a 1-D array of {dtype} ({member[10:80]!r})")
    payload = len(member) - header.end()
    if int(header[2]) * dtype.itemsize != payload:
        raise ValueError(f"{name} claims {int(header[2])} values of {dtype} in {payload} bytes")
    return np.frombuffer(member, dtype, offset=header.end())
