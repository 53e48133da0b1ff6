"""Search a spool for near-duplicates, one range of bands at a time, so that memory does not depend on its size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.common.files import save_array, whole_file
from deepsiam.data_prep.prepare import minhash, spool
from deepsiam.data_prep.prepare.minhash import RECORD

RANGE_BYTES = 1 << 27  # of bands that are compared at once


@dataclass(frozen=True)
class BandRange:
    """The bands with low <= band < high."""

    number: int
    low: int
    high: int


class Result(NamedTuple):
    """The files that a search writes, each sorted."""

    keys: Path  # of near-duplicates of documents with a smaller key
    elsewhere: Path  # keys of near-duplicates of other data sets' documents
    pairs: Path  # the bands and keys of all documents


def ranges(size: int) -> list[BandRange]:
    """Divide all bands, of `size` bytes with their keys, into ranges small enough to be compared at once."""
    ends = spool.edges(-(-size // RANGE_BYTES) or 1)
    return [BandRange(number, low, high) for number, (low, high) in enumerate(zip(ends, ends[1:], strict=False))]


def size_of(spooled: Sequence[Path]) -> int:
    """Return the bytes of the bands of spool files with their keys."""
    return sum(RECORD.itemsize * spool.about(path)["bands"] for path in spooled)


def comparer(
    spooled: Sequence[Path], parts: Sequence[Path], others: Sequence[Path], folder: Path
) -> Callable[[BandRange], BandRange]:
    """Return a worker's task for a range: write FOLDER/keys-N.npy, FOLDER/elsewhere-N.npy and last FOLDER/pairs-N.npy.

    The documents are those of the spool files and of the data sets whose pairs are `parts`. The first file has the keys
    of documents that share a band with a document of a smaller key; the second has the keys of documents that share a
    band with the data sets whose pairs are `others`.
    """

    def compare(bounds: BandRange) -> BandRange:
        pairs = np.unique(np.concatenate([_spooled(spooled, bounds), *(_saved(part, bounds) for part in parts)]))
        bands, keys = np.ascontiguousarray(pairs["band"]), np.ascontiguousarray(pairs["key"])
        shared = [keys[np.isin(bands, _saved(other, bounds)["band"])] for other in others]
        save_array(_file(folder, "keys", bounds), minhash.surpassed(bands, keys))
        save_array(_file(folder, "elsewhere", bounds), np.unique(np.concatenate([np.empty(0, spool.KEY), *shared])))
        save_array(pairs_file(folder, bounds), pairs)
        return bounds

    return compare


def _spooled(files: Sequence[Path], bounds: BandRange) -> np.ndarray:
    bands, keys = spool.bands(files, bounds.low, bounds.high)
    pairs = np.empty(len(bands), RECORD)
    pairs["band"], pairs["key"] = bands, keys
    return pairs


def _saved(file: Path, bounds: BandRange) -> np.ndarray:
    """Return the pairs of a data set's sorted pairs file whose bands are in a range."""
    pairs = np.load(file, mmap_mode="r")
    first, last = spool.between(pairs["band"], bounds.low, bounds.high)
    return np.array(pairs[first:last])


def pairs_file(folder: Path, bounds: BandRange) -> Path:
    """Return the file that exists once a range has been compared."""
    return _file(folder, "pairs", bounds)


def _file(folder: Path, name: str, bounds: BandRange) -> Path:
    return folder / f"{name}-{bounds.number:06d}.npy"


def collect(folder: Path, ranges: Sequence[BandRange]) -> Result:
    """Join the files of all ranges."""
    result = Result(folder / "keys.npy", folder / "elsewhere.npy", folder / "pairs.npy")
    if result.pairs.exists():
        return result
    for path in (result.keys, result.elsewhere):
        save_array(path, np.unique(np.concatenate([np.load(_file(folder, path.stem, bounds)) for bounds in ranges])))
    with whole_file(result.pairs) as file:
        parts = [np.load(pairs_file(folder, bounds), mmap_mode="r") for bounds in ranges]
        header = {"descr": np.lib.format.dtype_to_descr(RECORD), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (sum(map(len, parts)),)})
        for part in parts:
            file.write(part.tobytes())
    return result
