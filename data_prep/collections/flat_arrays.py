"""Flat .npy arrays that are written piece by piece and read as memory maps, alone or cut into rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import open_new, require_plain_file


class Appender:
    """Write a flat .npy whose length is known only at its end; a context manager."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = open_new(path)
        self._write_header()

    def extend(self, values: npt.ArrayLike) -> None:
        """Append values, converted to the array's dtype."""
        array = np.ascontiguousarray(values, self.dtype)
        self._file.write(array.data.cast("B") if len(array) else b"")
        self.length += len(array)

    def __enter__(self) -> "Appender":
        """Write into the file."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the length, and close the file."""
        if kind is None:
            self._file.seek(0)
            self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        # numpy pads the header, so its size is the same for any length
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def map_array(
    path: Path, dtypes: Iterable[npt.DTypeLike], dimensions: int = 1, *, remedy: str = "make the collection again"
) -> np.ndarray:
    """Memory-map an array of one of `dtypes`; raise InputError where the file is not one, or not as large as it says.

    Nothing of the array is read, and no memory taken, whatever the header says. What is returned is a view: items and
    slices of a `np.memmap` itself take several times as long.
    """
    require_plain_file(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        is_complete = array.offset + array.nbytes == path.stat().st_size
    except Exception as error:  # a damaged header can raise any
        raise InputError(f"{path}: cannot be read ({error}); {remedy}") from error
    if not is_complete or array.ndim != dimensions or array.dtype not in [np.dtype(dtype) for dtype in dtypes]:
        raise InputError(f"{path}: damaged (its size, shape or dtype is another); {remedy}")
    return np.asarray(array)


@dataclass(frozen=True)
class Rows:
    """A flat array cut into rows: row i is flat[ends[i - 1]:ends[i]]; the files are named in errors."""

    flat: np.ndarray
    ends: np.ndarray  # int64 [rows]
    flat_file: Path = Path("flat.npy")
    ends_file: Path = Path("ends.npy")

    @classmethod
    def map(cls, flat: Path, ends: Path, dtypes: Iterable[npt.DTypeLike]) -> "Rows":
        """Memory-map both arrays, at the same cost for any size; raise InputError if they do not belong together."""
        rows = cls(map_array(flat, dtypes), map_array(ends, [np.int64]), flat, ends)
        if (rows.ends[-1] if len(rows) else 0) != len(rows.flat):
            raise InputError(f"{ends}: damaged (it does not end where {flat.name} does); make the collection again")
        return rows

    @classmethod
    def of(cls, rows: Sequence[np.ndarray], dtype: npt.DTypeLike) -> "Rows":
        """Hold rows in memory."""
        flat = np.concatenate([np.empty(0, dtype), *rows], dtype=dtype)
        return cls(flat, np.cumsum([len(row) for row in rows], dtype=np.int64))

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.ends)

    def __getitem__(self, i: int) -> np.ndarray:
        """Return row i, a view; raise IndexError if there is no such row, InputError if the ends are damaged."""
        if not 0 <= i < len(self.ends):
            raise IndexError(i)
        start, end = int(self.ends[i - 1]) if i else 0, int(self.ends[i])
        if not 0 <= start <= end <= len(self.flat):
            raise InputError(f"{self.ends_file}: row {i} is damaged; make the collection again")
        return self.flat[start:end]
