"""Pairs of texts, a query and a document, to pre-train on: JSON lines, Parquet, .csv, .tsv, tars of .json members."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.sources.compressed import lines, open_input, require_line_ends
from deepsiam.data_prep.sources.csv_rows import csv_rows
from deepsiam.data_prep.sources.document import Bad, BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.parquet import MAGIC, parquet_columns, parquet_rows
from deepsiam.data_prep.sources.plain_text import MAX_BYTES, Line, json_object, line_pieces, name_in, require_characters
from deepsiam.data_prep.sources.source import Choices, File, Option, Piece, Source, finder, uncompressed
from deepsiam.data_prep.sources.webdataset import Sample, expand, member, samples
from deepsiam.data_prep.text.normalize import legible_line

KIND = "pairs"
BEGINNING = 1 << 9  # bytes of a file that determine its format: a tar's header
MOST_COLUMNS = 20  # that a message lists
LABELS = {"label", "labels", "score", "scores"}  # columns with these names, in sentence-transformers and in our formats
NOT_UTF_8 = "not UTF-8; convert the file, as iconv does"

_NO_FILES = "no .jsonl, .parquet, .csv, .tsv or .tar file in this folder; name a folder with such files, or files"
_NAME = re.compile(r".*\.(?:jsonl|ndjson|json|parquet|csv|tsv|tar)", re.IGNORECASE | re.DOTALL)
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")  # how a JSON array of objects begins


class _Row(NamedTuple):
    """A row of a table: its number, and its cells by the names of the columns that are read."""

    number: int
    cells: Mapping[str, Any]


def _pieces(file: File, choices: Choices) -> Iterator[Piece]:
    """Read a file in the format that its first bytes determine, or a table by its name."""
    path, suffix = file.path, Path(uncompressed(file.path)).suffix.lower()
    with open_input(path) as stream:
        start = stream.read(BEGINNING)
    if start.startswith(MAGIC):
        return _parquet(path, _fields(choices))
    if start[257:262] == b"ustar" or suffix == ".tar":
        return _checked(path, _fields(choices), samples(file, {"json"}))
    if suffix in (".csv", ".tsv"):
        return _table(path, suffix, _fields(choices))
    if _ARRAY.match(start):
        raise InputError(f"{path}: a JSON array; write each of its objects on a line, as jq -c '.[]' does")
    return _checked(path, _fields(choices), line_pieces(path, MAX_BYTES))


def _fields(choices: Choices) -> dict[str, str]:
    return {name: choices[name] for name in ("query", "document", "group", "id") if choices[name]}


def _checked(path: Path, fields: Mapping[str, str], pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the pieces of a file of JSON; raise InputError if the first record lacks one of the fields."""
    for number, piece in enumerate(pieces):
        if not number and not isinstance(piece.content, Bad):
            with suppress(BadRecordError):  # `_read` reports it
                _require(f"{path}: {piece.where}", fields, list(_record(piece.content)), "field")
        yield piece


def _parquet(path: Path, fields: Mapping[str, str]) -> Iterator[Piece]:
    _require(str(path), fields, parquet_columns(path))
    columns = list(fields.values())
    for number, values in parquet_rows(path, columns):
        size = sum(len(value) for value in values if isinstance(value, str))
        yield Piece(f"row {number:,}", size, _Row(number, dict(zip(columns, values, strict=True))))


def _table(path: Path, suffix: str, fields: Mapping[str, str]) -> Iterator[Piece]:
    lines_of = _text_lines(path)
    rows = csv_rows(lines_of, MAX_BYTES) if suffix == ".csv" else ((at, line.split("\t")) for at, line in lines_of)
    _, header = next(rows, (None, []))
    names = [name.strip() for name in header]
    if not _is_utf_8(header):
        raise InputError(f"{path}: line 1: {NOT_UTF_8}")
    _require(str(path), fields, names)
    for at, cells in rows:
        if not any(cells):
            continue
        where = f"line {at.number:,}"
        content: _Row | Bad = _Row(at.number, dict(zip(names, cells, strict=False)))
        if not _is_utf_8(cells):
            content = Bad(str(path), where, NOT_UTF_8)
        elif len(cells) != len(names):
            content = Bad(str(path), where, f"{len(cells):,} cells, the header has {len(names):,}")
        yield Piece(where, sum(map(len, cells)), content)


def _is_utf_8(cells: Iterable[str]) -> bool:
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True


def _require(where: str, fields: Mapping[str, str], columns: Sequence[str], kind: str = "column") -> None:
    """Raise InputError if a table or a record lacks one of the columns, has two of its name, or has one of labels."""
    for option, field in fields.items():
        if columns.count(field) != 1:
            names = ", ".join(name[:40] for name in columns[:MOST_COLUMNS]) + ", …" * (len(columns) > MOST_COLUMNS)
            number = f"two {kind}s" if field in columns else f"no {kind}"
            listed = printable(names) or "none"
            raise InputError(f"{where}: {number} {field!r}, but {listed}; name one of these with --{option}")
    if label := next((name for name in columns if name.lower() in LABELS and name not in fields.values()), None):
        raise InputError(
            f"{where}: its {kind} {label!r} would not count: every pair is taken as relevant. Keep those that are, and "
            f"not the {kind}; to train on labels, make a collection: python -m data_prep collection pairs"
        )


class _At(NamedTuple):
    path: Path
    number: int  # of a line, from 1

    def __str__(self) -> str:
        return f"{self.path}: line {self.number:,}"


def _text_lines(path: Path) -> Iterator[tuple[_At, str]]:
    """Yield the lines with their places; a byte that is not UTF-8 becomes half of a surrogate pair."""
    with open_input(path) as stream:
        for number, line in lines(stream, MAX_BYTES):
            at = _At(path, number)
            if line is None:
                raise InputError(f"{at}: more than {MAX_BYTES:,} bytes")
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")
            if number == 1:
                require_line_ends(path, text)
            yield at, text


def _read(file: File, piece: Piece, choices: Choices) -> Iterator[Document | Dropped]:
    record = _record(piece.content)
    name = piece.content.id if isinstance(piece.content, Sample) else f"{file.name}/{piece.content.number}"
    if choices["id"]:
        name = f"{file.name}/{name_in(record, choices['id'])}"
    group = f"{KIND}/{name_in(record, choices['group'])}" if choices["group"] else ""
    segments = tuple(_text(record, choices[side]) for side in ("query", "document"))
    gap = next((side for side, segment in zip(("query", "document"), segments, strict=True) if not segment), None)
    yield Dropped(f"empty {gap}") if gap else Document(name, segments, group=group)


def _record(content: Line | Sample | _Row) -> Mapping[str, Any]:
    """Return the fields of a record by name; raise BadRecordError with the reason if it has none."""
    if isinstance(content, _Row):
        return content.cells
    if isinstance(content, Sample):
        return json_object(member(content, "json"))
    if content.content is None:
        raise BadRecordError(f"more than {MAX_BYTES:,} bytes")
    return json_object(content.content)


def _text(record: Mapping[str, Any], field: str) -> str:
    text = record.get(field)
    if text is None and field in record:
        raise BadRecordError(f"field {field!r} is null")
    if not isinstance(text, str):
        raise BadRecordError(f"field {field!r} is missing or not a string")
    require_characters(text)
    return legible_line(text)


# One document per record, `pairs/FILE/ID`, of two segments: the query and the document. Whether a file's own ids are
# unique is not checked. Refused: a file whose columns, or first record, lack a field that an option names. Bad: a later
# record without these fields, or with one that is null or no text. Dropped: a record whose query or document is blank.
PAIRS = Source(
    summary="pairs of texts, a query and a document: JSON lines, Parquet, .csv, .tsv, tars of .json",
    find=finder(KIND, _NAME, _NO_FILES),
    pieces=_pieces,
    read=_read,
    paragraphs=False,
    pairs=True,
    expand=expand,
    example="titles.jsonl.zst --query title --document body --out data/titles",
    options=(
        Option("query", "query", "field or column with the query (query)", "FIELD"),
        Option("document", "document", "field or column with the document (document)", "FIELD"),
        Option("group", "", "field that names the page, thread or book of a pair", "FIELD"),
        Option("id", None, "field with its id, instead of the number of its line", "FIELD"),
    ),
)
