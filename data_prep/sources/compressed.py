"""Read dumps as streams: plain, gzip, bzip2, xz or zstd, in one stream or many.

Memory is bounded whatever the file contains: inflating a step takes at most 64 MiB, plus the format's window (zstd: up
to 2 GiB if the file asks for it, as Pushshift's do; xz: 1 GiB; the others: under 10 MB). bzip2 of many streams, by far
the slowest, is inflated by several threads where `inflating_with` says so, with up to 64 MiB for each.
"""

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from deepsiam.data_prep.common.errors import CutOffError, InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import os_errors_as_input_errors
from deepsiam.data_prep.sources import bzip2_streams
from deepsiam.data_prep.sources.bytes_read import counter

STEP = 1 << 10  # bytes of input inflated at a time; 4 bytes of zstd can inflate to 128 KiB
PIECE = 1 << 20  # bytes of output inflated at a time, in the formats that can limit it
ZSTD_WINDOW = 1 << 31
XZ_MEMORY = 1 << 30


@dataclass(frozen=True)
class Limits:
    """The limits for decompression bombs: `over` consecutive bytes from fewer than `over / ratio` bytes of the file."""

    ratio: int = 200  # English reaches 4 to 12
    over: int = 1 << 28


LIMITS = Limits()
_threads = 1


@contextmanager
def inflating_with(threads: int) -> Iterator[None]:
    """Inflate streams of bzip2 with this number of threads in the block, or in this thread alone if it is 1."""
    global _threads
    old_threads, _threads = _threads, threads
    try:
        yield
    finally:
        _threads = old_threads


@dataclass(frozen=True)
class Format:
    """A compression format: how its files begin and are named, and what inflates one stream of it."""

    name: str
    magic: re.Pattern[bytes]
    suffixes: tuple[str, ...]
    inflater: Callable[[], Any]  # has `decompress`, `eof` and `unused_data`
    padded: bool = False  # zeros may separate its streams; else they are what is left of lost ones


def _zstd() -> Any:
    require("dumps", "zstandard", feature="reading .zst files")
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()


FORMATS = (
    Format(
        "gzip", re.compile(rb"\x1f\x8b\x08"), (".gz", ".tgz"), lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), True
    ),
    Format("bzip2", bzip2_streams.MAGIC, (".bz2", ".tbz2"), bz2.BZ2Decompressor),
    Format(
        "xz", re.compile(rb"\xfd7zXZ\x00"), (".xz", ".txz"), lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY), True
    ),
    # a frame of data, or a skippable frame, with which parallel compressors begin
    Format("zstd", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), (".zst", ".tzst"), _zstd),
)


class EmptyFileError(InputError):
    """An empty file."""


@contextmanager
def open_input(path: Path, limits: Limits = LIMITS) -> Iterator["io.BufferedReader[Any]"]:
    """Yield a file's content as one readable stream, inflated; its first bytes determine its format.

    Raises:
        EmptyFileError: the file or its content is empty.
        InputError: the file is not a plain file, cannot be read, or is not in the format that its suffix names. While
            it is read: it is damaged, cut short (CutOffError), or a bomb; the message gives the byte of the file.
    """
    with os_errors_as_input_errors(path, "read"):
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a plain file; name the files themselves")
        file = open(path, "rb")  # noqa: SIM115 - an OSError in the caller's block must not become an InputError
    with file, io.BufferedReader(_Joined(_pieces(path, file, limits)), PIECE) as stream:
        if not stream.peek(1):
            raise EmptyFileError(f"{path}: is empty; get it again, or leave it out")
        yield stream


def lines(stream: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line without its line end, with its number from 1; None for a line of more than `limit` bytes.

    No more than `limit` bytes of a line are in memory; the lines after a longer one are read as usual.
    """
    number = 0
    while line := stream.readline(limit + 2):
        number += 1
        is_whole = line.endswith(b"\n") or len(line) < limit + 2
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        yield number, content if is_whole and len(content) <= limit else None
        while not is_whole:
            line = stream.readline(limit + 2)
            is_whole = line.endswith(b"\n") or not line


def require_line_ends(path: Path, line: str) -> None:
    """Raise InputError if the first line holds others: if a carriage return alone ends the lines, as on old Macs."""
    if "\r" in line.rstrip("\r"):
        raise InputError(f"{path}: its lines end with a carriage return alone; convert it, as tr '\\r' '\\n' does")


class _Joined(io.RawIOBase):
    """A file made of pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]):
        self.pieces = pieces
        self.left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.left:
            piece = next(self.pieces, None)
            if piece is None:
                return 0
            self.left = memoryview(piece)
        size = min(len(buffer), len(self.left))
        buffer[:size] = self.left[:size]
        self.left = self.left[size:]
        return size


def _pieces(path: Path, file: BinaryIO, limits: Limits) -> Iterator[bytes]:
    data = _read(path, file, STEP)
    actual = next((form for form in FORMATS if form.magic.match(data)), None)
    named_form = next((form for form in FORMATS if path.suffix.lower() in form.suffixes), None)
    if data and named_form and actual is not named_form:
        problem = f"contains {actual.name}" if actual else f"does not begin as {named_form.name} does (byte 0)"
        raise InputError(f"{path}: is named {path.suffix} but {problem}; get it again, or rename it")
    if actual:
        growth = Growth(path, actual.name, limits)
        if actual.name == "bzip2" and _threads > 1:
            data = yield from _inflated_by_threads(path, file, growth)
        yield from _inflated(path, file, data, actual, growth)
        return
    while data:
        yield data
        data = _read(path, file, PIECE)


def _inflated(path: Path, file: BinaryIO, data: bytes, kind: Format, growth: "Growth") -> Iterator[bytes]:
    """Inflate the streams of a file one after the other, beginning with `data`, which has just been read."""
    while data:
        inflater = kind.inflater()
        while not inflater.eof:
            if not data:
                raise CutOffError(f"{path}: its {kind.name} data is cut off at byte {file.tell():,}; get it again")
            at = file.tell() - len(data)
            for piece in _inflate(inflater, data, path, kind.name, at):
                yield piece
                growth.add(len(piece), at + len(data))
            data = inflater.unused_data or _read(path, file, STEP)
        data = _after_zeros(path, file, data, kind)


def _after_zeros(path: Path, file: BinaryIO, data: bytes, kind: Format) -> bytes:
    """Return what follows a stream and the zeros after it, which may pad any file at its end, as on a tape."""
    begin = file.tell() - len(data)
    zeros = data.startswith(b"\0")
    while data and not (data := data.lstrip(b"\0")):
        data = _read(path, file, STEP)
    if zeros and data and not kind.padded:
        end = file.tell() - len(data)
        raise InputError(f"{path}: only zeros from byte {begin:,} to {end:,} of its {kind.name} data; get it again")
    return data


def _inflated_by_threads(path: Path, file: BinaryIO, growth: "Growth") -> Generator[bytes, None, bytes]:
    """Inflate a bzip2 file up to an unusual stream, if it has one; return how that begins, for `_inflated`."""
    end = 0
    file.seek(0)
    try:
        for piece, end in bzip2_streams.inflated(lambda size: _read(path, file, size), _threads):
            yield piece
            growth.add(len(piece), end)
        return b""
    except bzip2_streams.UnusualError:
        file.seek(end - end % STEP)  # as `_inflated` would, so that messages name the same byte
        return _read(path, file, STEP)[end % STEP :]


@dataclass
class Growth:
    """Detect a decompression bomb and raise InputError for it."""

    path: Path
    kind: str
    limits: Limits
    inflated: int = 0  # bytes since the last check
    since: int = 0  # the position in the file of the last check

    def add(self, size: int, position: int) -> None:
        """Count inflated bytes that came from before a position of the file."""
        self.inflated += size
        if self.inflated <= self.limits.over:
            return
        if self.inflated > self.limits.ratio * (position - self.since):
            raise InputError(
                f"{self.path}: a bomb: the {self.kind} data before byte {position:,} grows more than "
                f"{self.limits.ratio} times, which no text does; do not use it"
            )
        self.inflated, self.since = 0, position


def _inflate(inflater: Any, data: bytes, path: Path, kind: str, at: int) -> Iterator[bytes]:
    try:
        if not hasattr(inflater, "needs_input"):  # gzip and zstd cannot limit their output well
            yield inflater.decompress(data)
            return
        yield inflater.decompress(data, PIECE)
        while not (inflater.eof or inflater.needs_input):
            yield inflater.decompress(b"", PIECE)
    except Exception as error:  # each library has its own exceptions
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: its {kind} data is damaged near byte {at:,} ({reason}); get it again") from error


def _read(path: Path, file: BinaryIO, size: int) -> bytes:
    with os_errors_as_input_errors(path, "read"):
        data = file.read(size)
    counter.bytes += len(data)
    return data
