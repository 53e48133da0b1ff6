"""Read Parquet files row by row, with a few rows in memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.sources.bytes_read import counter
from deepsiam.data_prep.sources.compressed import LIMITS, Growth, Limits
from deepsiam.data_prep.sources.parquet_pages import pages

READ_BYTES = 1 << 27  # bytes: no more rows are decoded at once than surely fit in these
MOST_ROWS = 1_000
BUFFER = 1 << 20  # bytes of a column, compressed, that are read at once
MAGIC = b"PAR1"
VALUE = 8  # bytes that a value takes at least, where a page may have a repeated one once


def parquet_columns(path: Path, description: str = "a Parquet file") -> list[str]:
    """Return the names of the columns in order; raise InputError if the file is not one, or pyarrow is missing."""
    with _opened(path, description, []) as file:
        return list(file.schema_arrow.names)


def parquet_rows(
    path: Path, columns: Sequence[str], description: str = "a Parquet file", limits: Limits = LIMITS
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row from 1, and its values of the named columns.

    In place of a value that Python cannot hold is the exception that says why. A message says that the file is not
    `description`; `limits` bound what few bytes may become.
    """
    row_count = [0]
    growths = [Growth(path, "Parquet", limits) for _ in columns]
    with _opened(path, description, row_count) as file, open(path, "rb") as raw:
        place = _Place(path.stat().st_size)
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            place = place._replace(start=place.position(place.rows), size=size, rows=max(group.num_rows, 1))
            at_once = [_rows_at_once(path, raw, number, file.metadata, name, limits) for name in columns]
            streams = [
                _values(file, number, name, batch_rows, growth, place)
                for name, batch_rows, growth in zip(columns, at_once, growths, strict=True)
            ]
            for row, values in enumerate(zip(*streams, strict=True), 1):
                row_count[0] += 1
                counter.bytes += place.position(row) - place.position(row - 1)
                yield row_count[0], list(values)


class _Place(NamedTuple):
    """Where a row group is: the bytes of the file, those before the group and in it, and the number of its rows."""

    end: int
    start: int = 0
    size: int = 0
    rows: int = 1

    def position(self, row: int) -> int:
        """Return about how many bytes of the file a row of the group, from 1, and all before it take."""
        return min(self.start + self.size * min(row, self.rows) // self.rows, self.end)


def _values(file: Any, group: int, name: str, at_once: int, growth: Growth, place: _Place) -> Iterator[Any]:
    """Yield the values of a column of a row group."""
    kind = file.metadata.schema.to_arrow_schema().field(name).type
    row = 0
    for batch in file.iter_batches(at_once, row_groups=[group], columns=[name], use_threads=False):
        values = batch[name]
        size, row = _size(values), row + len(values)
        growth.add(size, place.position(row))
        yield from map(_value, values.cast(kind) if size <= READ_BYTES else values)  # faster than texts of a dictionary


def _size(values: Any) -> int:
    """Return the bytes that values take in Python: an array has a text of a dictionary once."""
    from pyarrow import compute, types

    if types.is_map(values.type):
        return _size(values.keys) + _size(values.items)
    if types.is_nested(values.type):
        parts = values.flatten()  # the items of lists, or the fields of structs
        return sum(map(_size, parts if isinstance(parts, list) else [parts]))
    if types.is_dictionary(values.type):
        return compute.sum(compute.binary_length(values.dictionary).take(values.indices)).as_py() or 0
    return int(values.nbytes)


def _value(scalar: Any) -> Any:
    """Return a value in Python; the exception where Python has none for it, such as text that is not UTF-8."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return error


def _rows_at_once(path: Path, raw: BinaryIO, number: int, metadata: Any, name: str, limits: Limits) -> int:
    """Return how many rows of a column surely fit in READ_BYTES.

    Raises:
        InputError: it takes too much to decode: before, as a page or a list is decoded whole.
        ValueError: its pages are damaged.
    """
    inflated = 1
    for index in range(metadata.num_columns):
        column, in_schema = metadata.row_group(number).column(index), metadata.schema.column(index)
        if name not in (column.path_in_schema, column.path_in_schema.partition(".")[0]):
            continue
        in_pages = pages(raw, column)
        size = max(in_pages.inflated, max(VALUE, in_schema.length) * in_pages.values)
        if size > max(limits.over, limits.ratio * in_pages.size):
            raise InputError(
                f"{path}: a bomb: row group {number + 1:,} of its column {column.path_in_schema} grows more than "
                f"{limits.ratio} times, to {size:,} bytes, which no text does; do not use it"
            )
        if not _is_listed(in_schema):  # the file has a repeated text once, so that a row may be as large as all pages
            inflated += in_pages.inflated
        elif delta := [encoding for encoding in column.encodings if encoding.startswith("DELTA")]:
            raise InputError(
                f"{path}: its column {column.path_in_schema} has texts of lists in the encoding {delta[0]}, which is "
                "not read: write the file with another one, as pandas does"
            )
    return min(max(READ_BYTES // inflated, 1), MOST_ROWS)


def _is_listed(column: Any) -> bool:
    """Return whether a column has texts in lists, of which a row may have any number."""
    return column.max_repetition_level > 0 and column.physical_type == "BYTE_ARRAY"


@contextmanager
def _opened(path: Path, description: str, row_count: Sequence[int]) -> Iterator[Any]:
    require("dumps", "pyarrow", feature=f"{path}: reading Parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(path)
        in_schema = map(metadata.schema.column, range(metadata.num_columns))
        # else a list would have a text of few bytes as often as they say
        lists = [column.path for column in in_schema if _is_listed(column)]
        keys = {"metadata": metadata, "read_dictionary": lists, "buffer_size": BUFFER, "pre_buffer": False}
        with parquet.ParquetFile(path, **keys) as file:
            yield file
    except (pyarrow.ArrowException, OSError, KeyError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        place = f" after row {row_count[0]:,}" if row_count else ""
        raise InputError(f"{path}: not {description}{place}: {problem}") from None
