"""A file that is hashed while it is written, so that a checkpoint's manifest needs no second reading.

Used by every file of a checkpoint, when one is saved. The weights are written as safetensors, piece by piece: that
library would write to a path without hashing, or copy them all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from pathlib import Path

from torch import Tensor
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from deepsiam.data_prep.common.files import open_new
from deepsiam.data_prep.common.json_file import Count, Sha256

PIECE = 1 << 20  # bytes given to the operating system and the hashing thread at a time
AHEAD = 16  # how many pieces writing may be ahead of hashing; they are kept in memory: 16 MB


class FileEntry(TypedDict):
    """A file's entry in a manifest."""

    bytes: Count
    sha256: Sha256


@contextmanager
def hashed_file(path: Path) -> Iterator[HashedFile]:
    """Yield a new file, to be written sequentially; it is on disk when the block ends, and has its `entry()`.

    Raise OSError, which names it, if it cannot be written.
    """
    # one thread: a hash takes its pieces in order
    with open_new(path, buffering=0) as opened, ThreadPoolExecutor(1) as thread:
        file = HashedFile(path, opened.fileno(), thread)
        yield file
        file.sync()


class HashedFile:
    """A file object for torch.save and others, with `write` and `flush`. Hashing and writing release Python's lock."""

    def __init__(self, path: Path, descriptor: int, thread: ThreadPoolExecutor):
        self._path, self._descriptor, self._thread = path, descriptor, thread
        self._buffer = bytearray()
        self._size = 0
        self._digest = hashlib.sha256()
        self._hashing: deque[Future[None]] = deque()

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; return their number. The caller may reuse their memory at once."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE):
            self._buffer += view[start : start + PIECE]
            if len(self._buffer) >= PIECE:
                self.flush()
        return len(view)

    def flush(self) -> None:
        """Pass buffered bytes to the operating system and the hashing thread; wait while the thread is far behind."""
        piece, self._buffer = self._buffer, bytearray()
        self._hashing.append(self._thread.submit(self._digest.update, piece))
        unwritten = memoryview(piece)
        with _named(self._path):
            while unwritten:  # os.write may take a part
                unwritten = unwritten[os.write(self._descriptor, unwritten) :]
        self._size += len(piece)
        while len(self._hashing) > AHEAD:
            self._hashing.popleft().result()

    def sync(self) -> None:
        """Wait until everything is on disk and hashed."""
        self.flush()
        with _named(self._path):
            os.fsync(self._descriptor)
        while self._hashing:
            self._hashing.popleft().result()

    def entry(self) -> FileEntry:
        """Return the manifest's entry for the file, once it is synced: its size in bytes and its SHA-256."""
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}


@contextmanager
def _named(path: Path) -> Iterator[None]:
    # an OSError from a descriptor names no file
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_weights(file: HashedFile, shapes: Mapping[str, tuple[int, ...]], weights: Iterable[Tensor]) -> None:
    """Write tensors in fp32, by name: the same bytes as `safetensors.torch.save`.

    `shapes` and `weights` are in the order of the names. Each tensor is requested after the previous ones are written.
    The format: the header's length in 8 bytes, the header in JSON, blank-padded to a multiple of 8, the numbers.
    """
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for (name, shape), tensor in zip(shapes.items(), weights, strict=True):
        if tensor.shape != shape:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, not {shape}")
        file.write(tensor.float().cpu().numpy().astype("<f4", copy=False).reshape(-1).view("u1").data)
