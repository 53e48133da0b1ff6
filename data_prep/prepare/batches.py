"""Divide a source's pieces into batches, the tasks of workers; a resumed run skips finished batches.

A batch is named by the hash of its content (files by name, size and time, the numbers of its pieces) and of all options
that decide its result, so only a run that would do the same reuses it. A large file has its own batches. Among the
other files, a hash of the name decides which begin a new batch: if a file is changed or left out, few batches change.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from deepsiam.data_prep.common.errors import CutOffError, InputError
from deepsiam.data_prep.common.files import os_errors_as_input_errors
from deepsiam.data_prep.prepare import spool
from deepsiam.data_prep.sources.bytes_read import counter
from deepsiam.data_prep.sources.source import Choices, File, Piece, Source

MIN_BYTES, MAX_BYTES = 1 << 20, 1 << 24  # bytes of a batch's pieces
BATCHES = 64  # of a small input, so that every worker has some
MAX_PIECES = 1 << 17  # pieces of a batch


@dataclass(frozen=True)
class Part:
    """One of `of` disjoint parts of the input, for one of many machines; `number` from 1."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Parse `3/16`; raise ValueError for anything else."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ValueError(f"{text!r} is not a part such as 3/16")
        return cls(int(number), int(of))

    def has(self, number: int) -> bool:
        """Return whether a piece belongs to this part."""
        return number % self.of == self.number - 1


@dataclass(frozen=True)
class Batch:
    """Pieces with their files; `bytes_read`: the bytes of the input up to the end of these pieces."""

    name: str
    pieces: tuple[tuple[File, Piece], ...]
    bytes_read: int


def batches(
    source: Source,
    files: Sequence[File],
    choices: Choices,
    part: Part,
    options_key: str,
    limit: int | None = None,
    cut_off: dict[str, int] | None = None,
) -> Iterator[Batch]:
    """Yield the batches of one part of the files.

    Args:
        source, files, choices: what is read, and how.
        part: which of the pieces.
        options_key: identifies the options in the name of a batch.
        limit: how many pieces are read for all parts together; None: all.
        cut_off: receives, under the name of each file that ends early, the number of its sound pieces, which are used;
            None: such a file is an error.

    Raises:
        InputError: a file is damaged; all sound pieces before the damage have been yielded.
    """
    bytes_done = came = 0
    batch = _OpenBatch(options_key)
    identities = [_identity(file) for file in files]
    # a power of two, which rarely changes when a file is left out
    large = min(MAX_BYTES, MIN_BYTES << (sum(size for size, _ in identities) // (MIN_BYTES * BATCHES)).bit_length())
    for index, (file, (size, identity)) in enumerate(zip(files, identities, strict=True)):
        if came == limit:
            break
        bytes_before, pieces_before = counter.bytes, came
        # this share of all files begin a batch, chosen independently of the files before
        if size > large or spool.key_of(identity) < size / large * spool.KEYS:
            yield from batch.close(bytes_done)
        try:
            pieces_left = None if limit is None else limit - came
            for ordinal, piece in enumerate(islice(source.records(file, choices), pieces_left)):
                came += 1
                if part.has(index + ordinal):
                    batch.add(file, identity, ordinal, piece)
                if batch.size >= large or len(batch.pieces) >= MAX_PIECES:
                    yield from batch.close(bytes_done + min(size, counter.bytes - bytes_before))
        except CutOffError as error:
            yield from batch.close(bytes_done)
            if cut_off is None:
                raise InputError(f"{error}, or use what is before that with --accept-truncated") from None
            cut_off[file.name] = came - pieces_before
        except InputError:
            yield from batch.close(bytes_done)
            raise
        bytes_done += size
        if size > large:
            yield from batch.close(bytes_done)
    yield from batch.close(bytes_done)


class _OpenBatch:
    """The batch that is being filled."""

    def __init__(self, options_key: str) -> None:
        self.options_key = options_key
        self._empty()

    def _empty(self) -> None:
        self.size = 0
        self.pieces: list[tuple[File, Piece]] = []
        self.digest = blake2b(self.options_key.encode(), digest_size=16)

    def add(self, file: File, identity: str, ordinal: int, piece: Piece) -> None:
        self.size += piece.size
        self.pieces.append((file, piece))
        self.digest.update(f"{identity} {ordinal}\n".encode())

    def close(self, bytes_read: int) -> Iterator[Batch]:
        if self.pieces:
            yield Batch(self.digest.hexdigest(), tuple(self.pieces), bytes_read)
        self._empty()


def _identity(file: File) -> tuple[int, str]:
    with os_errors_as_input_errors(file.path, "read"):
        status = file.path.stat()
    return status.st_size, json.dumps([file.name, status.st_size, status.st_mtime_ns])
