"""Tables whose columns have names: .tsv and .csv with a header, JSON lines, a JSON array, Parquet.

In .csv a cell may be in quotes; in .tsv, as in GLUE, quotes are ordinary characters.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.files.json_array import beginning, json_records
from deepsiam.data_prep.collections.files.tsv import counted
from deepsiam.data_prep.collections.format import LONGEST_LINE, Where, suffixes, text_lines
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.compressed import require_line_ends
from deepsiam.data_prep.sources.csv_rows import csv_rows as rows_of
from deepsiam.data_prep.sources.parquet import MAGIC, parquet_columns, parquet_rows

TSV, CSV, JSON, PARQUET = "tsv", "csv", "json", "parquet"


def table_kind(path: Path) -> str:
    """Return TSV, CSV, JSON or PARQUET, from the file's beginning and whether .csv is in its name."""
    start = beginning(path)
    if start.startswith(MAGIC):
        return PARQUET
    if start.startswith((b"{", b"[")):
        return JSON
    return CSV if ".csv" in suffixes(path) else TSV


def table_columns(path: Path) -> list[str]:
    """Return the names of the columns in their order; in JSON, the keys of the first object."""
    kind = table_kind(path)
    if kind == PARQUET:
        return parquet_columns(path)
    if kind == JSON:
        return list(next(json_records(path), (None, {}))[1])
    where, cells = next(_cells(path, kind), (Where(path, 1), []))
    names = [cell.strip() for cell in cells]
    if repeats := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{where}: two columns are named {repeats[0]!r:.40}; is this line a header?")
    return names


def table_rows(path: Path, *, cut_short: bool = False) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield the rows as dicts keyed by column name; the cells of .tsv and .csv are text.

    `cut_short`: a row of .tsv and .csv may have fewer cells than the header.
    """
    kind = table_kind(path)
    if kind == JSON:
        yield from json_records(path)
        return
    names = table_columns(path)
    if kind == PARQUET:
        for row, values in parquet_rows(path, names):
            yield Where(path, 0, f"row {row}"), dict(zip(names, values, strict=True))
        return
    rows = _cells(path, kind)
    next(rows, None)
    for where, cells in rows:
        if len(cells) > len(names) or (len(cells) < len(names) and not cut_short):
            raise InputError(f"{where}: {counted(cells)}, the header has {len(names)}")
        yield where, dict(zip(names, cells, strict=False))


def csv_rows(path: Path) -> Iterator[tuple[Where, list[str]]]:
    """Yield the rows of a CSV file, each with the line that it begins on; raise InputError where one is not CSV."""
    yield from rows_of(_lines(path, blank=True), LONGEST_LINE)


def _cells(path: Path, kind: str) -> Iterator[tuple[Where, list[str]]]:
    return csv_rows(path) if kind == CSV else ((where, line.split("\t")) for where, line in _lines(path))


def _lines(path: Path, *, blank: bool = False) -> Iterator[tuple[Where, str]]:
    for where, line in text_lines(path, blank=blank):
        if where.line == 1:
            require_line_ends(path, line)
        yield where, line
