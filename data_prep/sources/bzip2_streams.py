"""Inflate the streams of a bzip2 file with several threads: a multistream dump has one for every hundred pages.

The module bz2 inflates them without Python's lock. A long stream, such as a whole file of one, and everything else that
is not clearly valid, is left to the caller's own reader.
"""

import bz2
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

LARGEST = 1 << 22  # bytes of a stream, and of the file that are searched for streams at a time
INFLATED = 1 << 25  # bytes of an inflated stream
AHEAD = 2  # streams for each thread

# after the level: the first block, or the end of an empty stream
MAGIC = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")


class UnusualError(Exception):
    """A long stream, damage, a bomb, bytes after the last stream."""


def inflated(reader: Callable[[int], bytes], threads: int) -> Iterator[tuple[bytes, int]]:
    """Yield the content of each stream of a bzip2 file, and the byte of the file where it ends.

    `reader` reads a number of bytes from the file, fewer only at its end; `threads` streams are inflated at once. Raise
    UnusualError where what follows the stream yielded last must be read by another reader.
    """
    pool = ThreadPoolExecutor(threads, "bzip2")
    try:
        waiting: deque[tuple[Future[bytes], int]] = deque()
        position = 0
        for stream in _streams(reader):
            if len(waiting) == AHEAD * threads:
                content, end = waiting.popleft()
                yield content.result(), end
            position += len(stream)
            waiting.append((pool.submit(_inflate, stream), position))
        for content, end in waiting:
            yield content.result(), end
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _streams(reader: Callable[[int], bytes]) -> Iterator[bytes]:
    """Split the file where streams seem to begin; raise UnusualError for a long one."""
    content = b""
    while block := reader(LARGEST):
        content += block
        starts = [0, *(mark.start() for mark in MAGIC.finditer(content, 1))]
        for start, end in pairwise(starts):
            yield content[start:end]
        content = content[starts[-1] :]
        if len(content) > LARGEST:
            raise UnusualError
    yield content


def _inflate(stream: bytes) -> bytes:
    inflater = bz2.BZ2Decompressor()
    try:
        content = inflater.decompress(stream, INFLATED)
    except OSError:
        raise UnusualError from None
    if not inflater.eof or inflater.unused_data:
        raise UnusualError
    return content
