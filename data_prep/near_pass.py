"""The search for near-duplicates in a spool, by ranges of the bands, so that memory does not depend on its size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep import near_duplicates, spool
from data_prep.files import whole_file
from data_prep.near_duplicates import RECORD

RANGE_BYTES = 1 << 27  # of the bands that are compared at once


@dataclass(frozen=True)
class Range:
    """The bands from `low` up to, but without, `high`."""

    number: int
    low: int
    high: int


class Found(NamedTuple):
    """The files with what a search has found, each sorted."""

    keys: Path  # of near-duplicates among the documents themselves
    elsewhere: Path  # the keys of near-duplicates of other data sets' documents
    pairs: Path  # of all documents


def ranges(size: int) -> list[Range]:
    """Ranges of all bands, where there are `size` bytes of them and their keys, each small enough to be compared."""
    ends = spool.edges(-(-size // RANGE_BYTES) or 1)
    return [Range(number, low, high) for number, (low, high) in enumerate(zip(ends, ends[1:], strict=False))]


def size_of(spooled: Sequence[Path]) -> int:
    """How many bytes the bands of spool files have, with their keys."""
    return sum(RECORD.itemsize * header["records"] * header["bands"] for header in map(spool.about, spooled))


def comparer(
    spooled: Sequence[Path], parts: Sequence[Path], others: Sequence[Path], folder: Path
) -> Callable[[Range], Range]:
    """What a worker does with a range: FOLDER/keys-N.npy and FOLDER/elsewhere-N.npy, and last FOLDER/pairs-N.npy.

    The documents are those of the spool files, and of the data sets whose pairs are `parts`. The first file has the
    keys of those one of whose bands is also that of another with a smaller key; the second, of those that share one
    with the data sets whose pairs are `others`.
    """

    def compare(wanted: Range) -> Range:
        pairs = np.unique(np.concatenate([_spooled(spooled, wanted), *(_saved(part, wanted) for part in parts)]))
        bands, keys = np.ascontiguousarray(pairs["band"]), np.ascontiguousarray(pairs["key"])
        known = [keys[np.isin(bands, _saved(other, wanted)["band"])] for other in others]
        save(_file(folder, "keys", wanted), near_duplicates.surpassed(bands, keys))
        save(_file(folder, "elsewhere", wanted), np.unique(np.concatenate([np.empty(0, spool.KEY), *known])))
        save(pairs_file(folder, wanted), pairs)
        return wanted

    return compare


def _spooled(files: Sequence[Path], wanted: Range) -> np.ndarray:
    bands, keys = spool.bands(files, wanted.low, wanted.high)
    pairs = np.empty(len(bands), RECORD)
    pairs["band"], pairs["key"] = bands, keys
    return pairs


def _saved(file: Path, wanted: Range) -> np.ndarray:
    """Those of a data set's sorted pairs whose bands are in a range."""
    pairs = np.load(file, mmap_mode="r")
    first, last = spool.between(pairs["band"], wanted.low, wanted.high)
    return np.array(pairs[first:last])


def pairs_file(folder: Path, wanted: Range) -> Path:
    """The file that is there once a range has been compared."""
    return _file(folder, "pairs", wanted)


def _file(folder: Path, what: str, wanted: Range) -> Path:
    return folder / f"{what}-{wanted.number:06d}.npy"


def collect(folder: Path, wanted: Sequence[Range]) -> Found:
    """Joins what was found in all ranges."""
    found = Found(folder / "keys.npy", folder / "elsewhere.npy", folder / "pairs.npy")
    if found.pairs.exists():
        return found
    for path in (found.keys, found.elsewhere):
        save(path, np.unique(np.concatenate([np.load(_file(folder, path.stem, one)) for one in wanted])))
    with whole_file(found.pairs) as file:
        parts = [np.load(pairs_file(folder, one), mmap_mode="r") for one in wanted]
        header = {"descr": np.lib.format.dtype_to_descr(RECORD), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (sum(map(len, parts)),)})
        for part in parts:
            file.write(part.tobytes())
    return found


def save(path: Path, array: np.ndarray) -> None:
    """An .npy file, whole or not there."""
    with whole_file(path) as file:
        np.save(file, array)
