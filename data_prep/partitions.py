"""The utterances of any number of threads, grouped by thread out of core.

A thread's utterances go to the file that the first digits of the hash of its id name; a file with more than LARGEST
bytes is divided again by the digits after those. A single thread that is larger (300,000 utterances or so) is left
out whole. So memory is bounded whatever the input: the write buffers and one file, whose utterances take up to 12 times
its bytes until they are documents; under 1 GiB. The disk holds what was added and, again, the file being divided.
Threads come in the order of their hashes, however they were divided.
"""

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from data_prep.files import os_errors_as_input_errors
from data_prep.record import Dropped
from data_prep.threads import Utterance

LARGEST = 1 << 26  # bytes of a file that is read at once
BUFFER = 1 << 25  # bytes that are gathered before they are appended to their files
DIGITS = 2  # hexadecimal, of the hash: 256 files at each division


class Partitions:
    """Utterances appended to files in a folder, which is to be empty; iterating empties it again."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        """Writes nothing yet; `prefix` is what the hashes of all its threads begin with."""
        self.folder = folder
        self.prefix = prefix
        self.sizes: dict[str, int] = {}  # of the files, whose names are the first digits of hashes
        self.buffers: dict[str, bytearray] = {}
        self.buffered = 0
        self.hashes: dict[str, str] = {}  # of the first thread in each file
        self.mixed: set[str] = set()  # the files with more than one thread

    def add(self, utterance: Utterance) -> None:
        """Appends an utterance; InputError where the folder cannot be written."""
        digest = _digest(utterance.thread)
        name = digest[: len(self.prefix) + DIGITS]
        line = json.dumps(utterance, ensure_ascii=False).encode() + b"\n"
        self.buffers.setdefault(name, bytearray()).extend(line)
        self.sizes[name] = self.sizes.get(name, 0) + len(line)
        if self.hashes.setdefault(name, digest) != digest:
            self.mixed.add(name)
        self.buffered += len(line)
        if self.buffered > BUFFER:
            self._flush()

    def __iter__(self) -> Iterator[list[Utterance] | Dropped]:
        """Yields the utterances of each thread, in no order; `thread too large` for each of a thread left out.

        Raises:
            InputError: the folder cannot be written or read.
        """
        self._flush()
        for name in sorted(self.sizes):
            path = self.folder / name
            if self.sizes[name] <= LARGEST:
                yield from _threads(path)
            elif name in self.mixed:
                parts = Partitions(self.folder, name)
                for utterance in _read(path):
                    parts.add(utterance)
                path.unlink()
                yield from parts
            else:
                for _ in _read(path):
                    yield Dropped("thread too large")
            path.unlink(missing_ok=True)

    def _flush(self) -> None:
        for name, buffer in self.buffers.items():
            path = self.folder / name
            with os_errors_as_input_errors(path, "write"), open(path, "ab") as file:
                file.write(buffer)
        self.buffers.clear()
        self.buffered = 0


def _digest(thread: str) -> str:
    return blake2b(thread.encode(), digest_size=8).hexdigest()


def _read(path: Path) -> Iterator[Utterance]:
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        for line in file:
            yield Utterance(*json.loads(line))


def _threads(path: Path) -> Iterator[list[Utterance]]:
    """The threads of one file, by hash."""
    threads: dict[str, list[Utterance]] = {}
    for utterance in _read(path):
        threads.setdefault(utterance.thread, []).append(utterance)
    for thread in sorted(threads, key=lambda thread: (_digest(thread), thread)):
        yield threads.pop(thread)
