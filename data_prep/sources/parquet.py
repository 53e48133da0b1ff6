"""Read Parquet files row by row, with one row group in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_prep.common.errors import InputError
from data_prep.common.extras import require
from data_prep.sources.bytes_read import tally

LARGEST_ROW_GROUP = 1 << 30  # bytes, decompressed; those of wikimedia/wikipedia have about 10 MB
MAGIC = b"PAR1"


def parquet_columns(path: Path, what: str = "a Parquet file") -> list[str]:
    """Return the names of the columns in order; raise InputError if the file is not `what`, or pyarrow is missing."""
    with _opened(path, what, []) as file:
        return list(file.schema_arrow.names)


def parquet_rows(path: Path, columns: Sequence[str], what: str = "a Parquet file") -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row from 1, and its values of the named columns.

    Args:
        path: the file, not compressed as a whole.
        columns: their names.
        what: what the file should be, for the message.

    Raises:
        InputError: pyarrow is missing, the file is damaged or lacks these columns, or a row group is too large.
    """
    done = [0]
    with _opened(path, what, done) as file:
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).total_byte_size
            if size > LARGEST_ROW_GROUP:
                raise InputError(f"{path}: row group {group} has {size:,} bytes, more than {LARGEST_ROW_GROUP:,}")
            table = file.read_row_group(group, columns=list(columns))
            compressed = _compressed(file.metadata.row_group(group))
            for row, scalars in enumerate(zip(*(table[name] for name in columns), strict=True), 1):
                done[0] += 1
                tally.bytes += compressed * row // table.num_rows - compressed * (row - 1) // table.num_rows
                yield done[0], [scalar.as_py() for scalar in scalars]


def _compressed(group: Any) -> int:
    """Return the bytes of the file that a row group takes."""
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


@contextmanager
def _opened(path: Path, what: str, done: Sequence[int]) -> Iterator[Any]:
    require("dumps", "pyarrow", what=f"{path}: reading Parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        after = f" after row {done[0]:,}" if done else ""
        raise InputError(f"{path}: not {what}{after}: {problem}") from None
