"""Read Parquet files row by row, with a few rows in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.sources.bytes_read import tally
from deepsiam.data_prep.sources.compressed import LIMITS, Growth, Limits

READ = 1 << 27  # bytes: no more rows are decoded at once than surely fit in these
MOST_ROWS = 1_000
BUFFER = 1 << 20  # bytes of a column, compressed, that are read at once
MAGIC = b"PAR1"
VALUE = 8  # bytes of a value of a list, at most, that a file may have once


def parquet_columns(path: Path, what: str = "a Parquet file") -> list[str]:
    """Return the names of the columns in order; raise InputError if the file is not `what`, or pyarrow is missing."""
    with _opened(path, what, []) as file:
        return list(file.schema_arrow.names)


def parquet_rows(
    path: Path, columns: Sequence[str], what: str = "a Parquet file", limits: Limits = LIMITS
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row from 1, and its values of the named columns.

    In place of a value that Python cannot hold is the exception that says why.

    Args:
        path: the file, not compressed as a whole.
        columns: their names.
        what: what the file should be, for the message.
        limits: of what few bytes may become.

    Raises:
        InputError: pyarrow is missing, or the file is damaged, a bomb, or lacks these columns.
    """
    done = [0]
    growth, before = Growth(path, "Parquet", limits), 0  # the bytes of the row groups before
    with _opened(path, what, done) as file:
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            compressed, number = _compressed(about), max(about.num_rows, 1)
            _refuse_bomb(path, group, about, columns, limits)
            # a file has a repeated text once, so that each row may be as large as the whole encoded group
            most = min(max(READ // max(about.total_byte_size, 1), 1), MOST_ROWS)
            batches = file.iter_batches(most, row_groups=[group], columns=list(columns), use_threads=False)
            row = 0
            for batch in batches:
                size = 0
                for scalars in zip(*(batch[name] for name in columns), strict=True):
                    row += 1
                    done[0] += 1
                    tally.bytes += compressed * row // number - compressed * (row - 1) // number
                    values = [_value(scalar) for scalar in scalars]
                    size += sum(len(value) for value in values if isinstance(value, str))
                    yield done[0], values
                growth.add(max(size, batch.nbytes), before + compressed * row // number)  # a dictionary has a text once
            before += compressed


def _value(scalar: Any) -> Any:
    """Return a value in Python; the exception where Python has none for it, such as text that is not UTF-8."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return error


def _refuse_bomb(path: Path, number: int, group: Any, columns: Sequence[str], limits: Limits) -> None:
    """Raise InputError for a row group that takes too much to decode: before, as a page or a list is decoded whole."""
    for column in (group.column(i) for i in range(group.num_columns)):
        lists = VALUE * column.num_values if column.num_values > group.num_rows else 0
        size = max(column.total_uncompressed_size, lists)
        is_read = column.path_in_schema.partition(".")[0] in columns or column.path_in_schema in columns
        if is_read and size > max(limits.over, limits.ratio * column.total_compressed_size):
            raise InputError(
                f"{path}: a bomb: row group {number + 1:,} of its column {column.path_in_schema} grows more than "
                f"{limits.ratio} times, to {size:,} bytes, which no text does; do not use it"
            )


def _compressed(group: Any) -> int:
    """Return the bytes of the file that a row group takes."""
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


@contextmanager
def _opened(path: Path, what: str, done: Sequence[int]) -> Iterator[Any]:
    require("dumps", "pyarrow", what=f"{path}: reading Parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except (pyarrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        after = f" after row {done[0]:,}" if done else ""
        raise InputError(f"{path}: not {what}{after}: {problem}") from None
