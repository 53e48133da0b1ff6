"""Records on disk in the order of a 64-bit key: written by many workers, read back by ranges of the key.

A file holds the result of one task and is written atomically:

    a line of JSON          the writer's notes, and `records` (n), `bytes` (of the records) and `bands` (b)
    keys    uint64 [n]      in ascending order
    ends    uint64 [n]      end offsets of the records, which follow in the same order
    bands   uint64 [b]      in ascending order, if near-duplicates are searched for (near_duplicates.py)
    keys    uint64 [b]      of the records with these bands
    the records
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.files import os_errors_as_input_errors, whole_file

KEY = np.dtype("<u8")
KEYS = 1 << 64
RECORD = np.dtype([("band", "<u8"), ("key", "<u8")])  # B of them for each document
NO_BAND = 0  # for a document that is not compared


def key_of(text: str) -> int:
    """Return the 64-bit hash of a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def ranges(size: int, max_bytes: int) -> list[tuple[int, int]]:
    """Divide all keys, of records of `size` bytes, into ranges (low, high) of about `max_bytes`: low <= key < high."""
    return list(pairwise(edges(-(-size // max_bytes) or 1)))


def edges(ranges: int) -> list[int]:
    """Return where equal ranges of keys begin, and where the last one ends."""
    return [number * KEYS // ranges for number in range(ranges + 1)]


def write(
    path: Path, about: Mapping[str, Any], records: Sequence[tuple[int, bytes]], bands: np.ndarray | None = None
) -> None:
    """Write (key, record) pairs, and a row of `bands` for each; the same pairs in any order give the same bytes."""
    order = sorted(range(len(records)), key=records.__getitem__)
    contents = [records[index][1] for index in order]
    keys = np.array([records[index][0] for index in order], KEY)
    ends = np.cumsum([len(content) for content in contents], dtype=KEY)
    pairs = _compared(bands[order].astype(KEY), keys) if bands is not None and records else np.empty((2, 0), KEY)
    header = {**about, "records": len(records), "bytes": sum(map(len, contents)), "bands": pairs.shape[1]}
    with whole_file(path) as file:
        file.write(json.dumps(header).encode() + b"\n")
        for array in (keys, ends, pairs):
            file.write(array.tobytes())
        file.writelines(contents)


def _compared(bands: np.ndarray, keys: np.ndarray) -> np.ndarray:
    pairs = np.stack([bands.ravel(), np.repeat(keys, bands.shape[1])])
    pairs = pairs[:, pairs[0] != NO_BAND]
    return pairs[:, np.lexsort(pairs[::-1])]


def about(path: Path) -> dict[str, Any]:
    """Return a file's line of JSON: what its writer noted, `records`, `bytes` and `bands`."""
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        return json.loads(file.readline())


def gather(paths: Iterable[Path], low: int, high: int) -> Iterator[tuple[int, bytes]]:
    """Yield the records of all files with low <= key < high, file by file, with their keys."""
    for path in paths:
        with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
            header = json.loads(file.readline())
            number, at = header["records"], file.tell()
            if not number:
                continue
            keys = np.memmap(path, KEY, "r", at, (number,))
            low_row, high_row = between(keys, low, high)
            if low_row == high_row:
                continue
            ends = np.memmap(path, KEY, "r", at + 8 * number, (number,))
            begin = int(ends[low_row - 1]) if low_row else 0
            stops = ends[low_row:high_row].astype(np.int64) - begin
            file.seek(at + 16 * (number + header["bands"]) + begin)
            content = file.read(int(stops[-1]))
            starts = [0, *stops[:-1].tolist()]
            inside = keys[low_row:high_row].tolist()
        for key, start, stop in zip(inside, starts, stops.tolist(), strict=True):
            yield key, content[start:stop]


def sizes(paths: Iterable[Path], low: int, high: int) -> Counter[int]:
    """Return the bytes of the records of every key with low <= key < high, in all files."""
    totals: Counter[int] = Counter()
    for path in paths:
        with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
            number, at = json.loads(file.readline())["records"], file.tell()
            if number:
                keys, ends = (np.memmap(path, KEY, "r", at + 8 * number * row, (number,)) for row in (0, 1))
                start, end = between(keys, low, high)
                lengths = np.diff(ends[:end].astype(np.int64), prepend=0)[start:]
                for key, length in zip(keys[start:end].tolist(), lengths.tolist(), strict=True):
                    totals[key] += length
    return totals


def bands(paths: Iterable[Path], low: int, high: int) -> np.ndarray:
    """Return the bands of all files with low <= band < high, and the key of each: RECORD [n].

    Only these are read: the time of all ranges together does not grow with their number.
    """
    pairs = [np.empty(0, RECORD)]
    for path in paths:
        with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
            header = json.loads(file.readline())
            if not header["bands"]:
                continue
            stored = np.memmap(path, KEY, "r", file.tell() + 16 * header["records"], (2, header["bands"]))
        start, end = between(stored[0], low, high)
        pairs.append(np.ascontiguousarray(stored[:, start:end].T).view(RECORD).ravel())
    return np.concatenate(pairs)


def between(keys: np.ndarray, low: int, high: int) -> tuple[int, int]:
    """Return the slice of sorted keys with low <= key < high, as first and last + 1; `high` may be 2**64."""
    start = int(np.searchsorted(keys, np.uint64(low)))
    end = len(keys) if high >= KEYS else int(np.searchsorted(keys, np.uint64(high)))
    return start, end
