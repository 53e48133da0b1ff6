"""A source's pieces in batches, which are what workers are given and what a killed run does not do again.

A batch is named by the hash of what it holds (files by name, size and time, the numbers of its pieces) and of all that
is done with it, so a finished one is known again, and only by a run that would do the same. A large file has batches of
its own, and some of the others, by the hash of their names, begin one: where a file is damaged, mended or left out, all
batches stay but a few beside it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from data_prep import compressed, spool
from data_prep.errors import InputError
from data_prep.files import os_errors_as_input_errors
from data_prep.source import Choices, File, Piece, Source

LEAST, LARGEST = 1 << 20, 1 << 24  # bytes of a batch's pieces
BATCHES = 64  # of a small input, so that all workers have some
MOST = 1 << 17  # pieces


@dataclass(frozen=True)
class Part:
    """One of `of` disjoint parts of the input, for one of many machines; `number` from 1."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        """`3/16`; ValueError for anything else."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ValueError(f"{text!r} is not a part such as 3/16")
        return cls(int(number), int(of))

    def has(self, number: int) -> bool:
        """Whether a piece is of this part."""
        return number % self.of == self.number - 1


@dataclass(frozen=True)
class Batch:
    """Some pieces, and the file of each; up to their end the reader has gone through `read` bytes of the input."""

    name: str
    pieces: tuple[tuple[File, Piece], ...]
    read: int


def batches(source: Source, files: Sequence[File], choices: Choices, part: Part, what: str) -> Iterator[Batch]:
    """Yields the batches of one part of some files; `what` is done with a batch goes into its name.

    Raises:
        InputError: a file is damaged, when all that was sound before has been yielded.
    """
    done = 0
    group = _Group(what)
    known_files = [_identity(file) for file in files]
    # a power of two, which hardly ever is another one when a file is left out
    large = min(LARGEST, LEAST << (sum(size for size, _ in known_files) // (LEAST * BATCHES)).bit_length())
    for index, (file, (size, known)) in enumerate(zip(files, known_files, strict=True)):
        before = compressed.tally.bytes
        if size > large or _begins_a_batch(known, size / large):
            yield from group.close(done)
        try:
            for ordinal, piece in enumerate(source.pieces(file, choices)):
                if part.has(index + ordinal):
                    group.add(file, known, ordinal, piece)
                if group.size >= large or len(group.pieces) >= MOST:
                    yield from group.close(done + min(size, compressed.tally.bytes - before))
        except InputError:
            yield from group.close(done)
            raise
        done += size
        if size > large:
            yield from group.close(done)
    yield from group.close(done)


class _Group:
    """The batch that is being filled."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._empty()

    def _empty(self) -> None:
        self.size = 0
        self.pieces: list[tuple[File, Piece]] = []
        self.digest = blake2b(self.what.encode(), digest_size=16)

    def add(self, file: File, known: str, ordinal: int, piece: Piece) -> None:
        self.size += piece.size
        self.pieces.append((file, piece))
        self.digest.update(f"{known} {ordinal}\n".encode())

    def close(self, read: int) -> Iterator[Batch]:
        if self.pieces:
            yield Batch(self.digest.hexdigest(), tuple(self.pieces), read)
        self._empty()


def _begins_a_batch(known: str, share: float) -> bool:
    """Whether a file does, as this share of all do, whatever the files before it."""
    return spool.key_of(known) < share * spool.KEYS


def _identity(file: File) -> tuple[int, str]:
    """The size of a file, and what it does not keep when it is changed."""
    with os_errors_as_input_errors(file.path, "read"):
        status = file.path.stat()
    return status.st_size, json.dumps([file.name, status.st_size, status.st_mtime_ns])
