"""Inflate bzip2 with several threads: each block of each stream is inflated separately.

A stream is `BZh`, a digit, blocks, and an end with a CRC of all of them, padded to a whole byte. Blocks begin with a
mark of 48 bits, at any bit; each becomes its own stream, which the module bz2 inflates without Python's lock.
A mark that is in a block by chance, and everything else that is not clearly valid, is left to the caller's own reader.
"""

import bz2
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

WINDOW = 1 << 22  # bytes of the file that are searched for marks at a time
LARGEST = 1 << 22  # bytes of a block, compressed or not: a block of text has 0.9 MB
AHEAD = 2  # blocks for each thread

_BLOCK, _END = 0x314159265359, 0x177245385090
_BITS, _CRC_BITS = 48, 32  # of a mark, and of the CRC that follows it
_HEADER = re.compile(rb"BZh[1-9]")


class UnusualError(Exception):
    """Content that is not clearly valid: damage, a bomb, a mark by chance, bytes after the last stream."""


class _Mark(NamedTuple):
    bit: int
    kind: int


class _Part(NamedTuple):
    """A block as its own stream, or "" for the end of a stream; with its CRC, and the position of its last byte."""

    stream: bytes
    crc: int
    position: int


def inflated(read: Callable[[int], bytes], threads: int) -> Iterator[tuple[bytes, int]]:
    """Yield the content of a bzip2 file, block by block, and the byte of the file where each ends.

    Args:
        read: reads a number of bytes from the file, fewer only at its end.
        threads: how many blocks are inflated at once.

    Raises:
        UnusualError: the content yielded so far is right; what follows must be read by another reader.
    """
    pool = ThreadPoolExecutor(threads, "bzip2")
    try:
        waiting: deque[tuple[_Part, Future[bytes]]] = deque()
        combined = 0
        for part in _parts(read):
            if len(waiting) == AHEAD * threads:
                done, content = waiting.popleft()
                yield content.result(), done.position
            if part.stream:
                combined = (combined << 1 | combined >> 31) & 0xFFFFFFFF ^ part.crc
                waiting.append((part, pool.submit(_inflate, part.stream)))
            elif combined == part.crc:
                combined = 0
            else:
                raise UnusualError
        for done, content in waiting:
            yield content.result(), done.position
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _inflate(stream: bytes) -> bytes:
    inflater = bz2.BZ2Decompressor()
    try:
        content = inflater.decompress(stream, LARGEST)
    except (OSError, ValueError):
        raise UnusualError from None
    if not inflater.eof or inflater.unused_data:
        raise UnusualError
    return content


def _parts(read: Callable[[int], bytes]) -> Iterator[_Part]:
    """Yield the blocks and the ends of the streams, in order; raise UnusualError where the file is not made of them."""
    content, begin = read(WINDOW), 0  # `begin`: the byte of the file where `content` begins
    last = next(iter(_marks(content)), None)
    if last is None or not _begins(content, 0, last):
        raise UnusualError
    while True:
        for mark in _marks(content):
            if mark.bit > last.bit:
                yield _part(content, last, mark.bit, begin)
                if last.kind == _END and not _begins(content, _after(last), mark):
                    raise UnusualError
                last = mark
        keep = last.bit // 8
        more = read(WINDOW)
        if not more:
            break
        if len(content) - keep > LARGEST:
            raise UnusualError
        content, begin, last = content[keep:] + more, begin + keep, _Mark(last.bit % 8, last.kind)
    if last.kind != _END or len(content) != _after(last):
        raise UnusualError
    yield _part(content, last, last.bit, begin)


def _after(end: _Mark) -> int:
    """Return the byte after a stream."""
    return (end.bit + _BITS + _CRC_BITS + 7) // 8


def _begins(content: bytes, byte: int, mark: _Mark) -> bool:
    """Return whether a stream begins at the byte with the mark as its first (its end's mark if the stream is empty)."""
    header = _HEADER.match(content, byte)
    return header is not None and mark.bit == header.end() * 8


def _marks(content: bytes) -> list[_Mark]:
    """Find all marks, in order."""
    found = []
    for kind in (_BLOCK, _END):
        for shift in range(8):
            placed = (kind << (8 - shift)).to_bytes(7, "big")  # the mark, from the bit `shift` of the first byte on
            at = content.find(placed[1:6], 1)
            while at > 0:
                around = int.from_bytes(content[at - 1 : at + 6].ljust(7, b"\0"), "big")
                whole = at + 5 < len(content) or not shift
                if whole and around >> (8 - shift) & ((1 << _BITS) - 1) == kind:
                    found.append(_Mark((at - 1) * 8 + shift, kind))
                at = content.find(placed[1:6], at + 1)
    return sorted(found)


def _bits(content: bytes, start: int, end: int) -> int:
    number = int.from_bytes(content[start // 8 : (end + 7) // 8], "big")
    return number >> (-end % 8) & ((1 << (end - start)) - 1)


def _part(content: bytes, mark: _Mark, end: int, begin: int) -> _Part:
    """Return the part that begins with the mark; a block ends before the bit `end`."""
    crc = _bits(content, mark.bit + _BITS, mark.bit + _BITS + _CRC_BITS)
    if mark.kind == _END:
        return _Part(b"", crc, begin + _after(mark))
    block = _bits(content, mark.bit, end)
    stream = (block << _BITS | _END) << _CRC_BITS | crc
    size = end - mark.bit + _BITS + _CRC_BITS
    return _Part(b"BZh9" + (stream << -size % 8).to_bytes((size + 7) // 8, "big"), crc, begin + end // 8)
