"""Search a spool for near-duplicates, one range of bands at a time, so that memory does not depend on its size."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.common import workers
from deepsiam.data_prep.common.files import save_array, whole_file
from deepsiam.data_prep.prepare import minhash, spool
from deepsiam.data_prep.prepare.spool import RECORD

RANGE_BYTES = 1 << 27  # of bands that are compared at once
Bounds = tuple[int, int]  # low <= band < high


class Result(NamedTuple):
    """The files that a search writes, each sorted."""

    keys: Path  # of near-duplicates of documents with a smaller key
    elsewhere: Path  # keys of near-duplicates of other data sets' documents
    pairs: Path  # the bands and keys of all documents


def search(
    spooled: Sequence[Path], parts: Sequence[Path], other_pairs: Sequence[Path], folder: Path, processes: int
) -> Result:
    """Compare the documents of `spooled` files and of `parts`, the pairs of data sets, `processes` ranges at once.

    They are compared with `other_pairs` too, the pairs of other data sets. Finished ranges are in `folder`.
    """
    size = sum(RECORD.itemsize * spool.about(path)["bands"] for path in spooled)
    bounds = spool.ranges(size + sum(path.stat().st_size for path in parts), RANGE_BYTES)
    files = [_file(folder, "pairs", limits) for limits in bounds]
    workers.complete(bounds, files, comparer, (spooled, parts, other_pairs, folder), processes, "near", "ranges")
    return _joined(folder, bounds)


def comparer(
    spooled: Sequence[Path], parts: Sequence[Path], other_pairs: Sequence[Path], folder: Path
) -> Callable[[Bounds], Bounds]:
    """Return a worker's task for a range: write FOLDER/keys-N.npy, FOLDER/elsewhere-N.npy and last FOLDER/pairs-N.npy.

    The first file has the keys of documents that share a band with a document of a smaller key; the second has the keys
    of documents that share a band with `other_pairs`.
    """

    def compare(bounds: Bounds) -> Bounds:
        pairs = np.unique(np.concatenate([spool.bands(spooled, *bounds), *(_saved(part, bounds) for part in parts)]))
        bands, keys = np.ascontiguousarray(pairs["band"]), np.ascontiguousarray(pairs["key"])
        shared = [keys[np.isin(bands, _saved(file, bounds)["band"])] for file in other_pairs]
        save_array(_file(folder, "keys", bounds), minhash.surpassed(bands, keys))
        save_array(_file(folder, "elsewhere", bounds), np.unique(np.concatenate([np.empty(0, spool.KEY), *shared])))
        save_array(_file(folder, "pairs", bounds), pairs)
        return bounds

    return compare


def _saved(file: Path, bounds: Bounds) -> np.ndarray:
    pairs = np.load(file, mmap_mode="r")
    start, end = spool.between(pairs["band"], *bounds)
    return np.array(pairs[start:end])


def _file(folder: Path, name: str, bounds: Bounds) -> Path:
    return folder / f"{name}-{bounds[0]:016x}.npy"


def _joined(folder: Path, ranges: Sequence[Bounds]) -> Result:
    """Join the files of all ranges."""
    result = Result(folder / "keys.npy", folder / "elsewhere.npy", folder / "pairs.npy")
    if result.pairs.exists():
        return result
    for path in (result.keys, result.elsewhere):
        save_array(path, np.unique(np.concatenate([np.load(_file(folder, path.stem, bounds)) for bounds in ranges])))
    with whole_file(result.pairs) as file:
        parts = [np.load(_file(folder, "pairs", bounds), mmap_mode="r") for bounds in ranges]
        header = {"descr": np.lib.format.dtype_to_descr(RECORD), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (sum(map(len, parts)),)})
        for part in parts:
            file.write(part.tobytes())
    return result
