"""Text of any origin: plain files, one document each, and JSON lines, one document per line.

A document takes about 20 bytes of memory for each of its bytes, and at most 60 in hostile text (1 GiB for `MAX_BYTES`).
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deepsiam.data_prep.common.errors import CutOffError
from deepsiam.data_prep.common.files import os_errors_as_input_errors
from deepsiam.data_prep.sources.compressed import EmptyFileError, lines, open_input
from deepsiam.data_prep.sources.document import BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.pairing import neighbours
from deepsiam.data_prep.sources.recognise import not_text
from deepsiam.data_prep.sources.source import (
    EXPECTED_LANGUAGE,
    PAIRS,
    Choices,
    File,
    Option,
    Piece,
    Source,
    named,
    named_files,
    walk,
)
from deepsiam.data_prep.text.encoding import GUESS, decode, known
from deepsiam.data_prep.text.language_id import ANY_LANGUAGE
from deepsiam.data_prep.text.normalize import one_line
from deepsiam.data_prep.text.paragraphs import paragraphs

MAX_BYTES = 1 << 24  # bytes of a document
MANY_LINES = 10_000  # with so many, a file that is too long may be a list of sentences
LONGEST_ID = 200  # characters
NO_TEXT = Dropped("empty")
WHOLE_FILE = "the file"  # where a record is that is a whole file
ENCODING = Option("encoding", GUESS, "of files that are not UTF-8; by default it is guessed", "NAME", known)

_NAME = re.compile(r".*\.txt", re.IGNORECASE | re.DOTALL)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Text(NamedTuple):
    """A text, and the encoding that was guessed for it; "" for UTF-8 or a named one."""

    text: str
    guessed: str = ""


class Line(NamedTuple):
    """A line of a file with its number from 1; None if it is too long."""

    number: int
    content: bytes | None


def text_files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the given files, and the .txt files under given folders, compressed or not, with their names there."""
    return walk(paths, _NAME, "no .txt file in this folder; name the folder with the texts")


def whole_file(file: File, _: Choices) -> Iterator[Piece]:
    """Yield a file as one piece, its path: a worker opens and inflates it."""
    with os_errors_as_input_errors(file.path, "read"):
        size = file.path.stat().st_size
    yield Piece(WHOLE_FILE, size, file.path)


def whole_text(path: Path, choices: Choices) -> Text:
    """Return a file's text, inflated, as `decoded` does."""
    return decoded(whole_bytes(path), choices, is_file=True)


def whole_bytes(path: Path) -> bytes:
    """Return a file inflated, or one byte more than MAX_BYTES of it; raise BadRecordError if it is cut off."""
    try:
        with open_input(path) as stream:
            return stream.read(MAX_BYTES + 1)
    except EmptyFileError:
        return b""
    except CutOffError as error:
        raise BadRecordError(str(error).removeprefix(f"{path}: ")) from None


def decoded(content: bytes, choices: Choices, *, is_file: bool = False) -> Text:
    """Return the text of at most MAX_BYTES.

    Raise BadRecordError if it is longer, clearly not text, not in the chosen encoding or, for GUESS, in none that can
    be guessed.
    """
    if kind := not_text(content):
        raise BadRecordError(kind)
    if len(content) > MAX_BYTES:
        sentences = is_file and content.count(b"\n") > MANY_LINES
        hint = "; if each line is a sentence, use bookcorpus-sentences" if sentences else ""
        raise BadRecordError(f"more than {MAX_BYTES:,} bytes{hint}")
    try:
        return Text(*decode(content, choices.get("encoding", GUESS), choices.get(EXPECTED_LANGUAGE, ANY_LANGUAGE)))
    except ValueError as error:
        raise BadRecordError(str(error)) from None


def line_pieces(path: Path, limit: int) -> Iterator[Piece]:
    """Yield each line of a file that is not blank as a piece, a `Line`."""
    with open_input(path) as stream:
        for number, line in lines(stream, limit):
            if line is None or line.removeprefix(codecs.BOM_UTF8).strip():
                yield Piece(f"line {number:,}", len(line or b""), Line(number, line))


def _read_text(file: File, piece: Piece, choices: Choices) -> Iterator[Document | Dropped]:
    text, guessed = whole_text(piece.content, choices)
    segments = paragraphs(text)
    yield Document(file.name, tuple(segments), guessed=guessed) if segments else NO_TEXT


def _read_line(file: File, piece: Piece, choices: Choices) -> Iterator[Document | Dropped]:
    line, text = piece.content, choices["text"]
    if line.content is None:
        raise BadRecordError(f"more than {MAX_BYTES:,} bytes")
    record = json_object(line.content)
    content = record.get(text)
    if not isinstance(content, str):
        raise BadRecordError(f"field {text!r} is missing or not a string")
    require_characters(content)
    name, segments = name_in(record, choices["id"]) if choices["id"] else line.number, paragraphs(content)
    yield Document(f"{file.name}/{name}", tuple(segments)) if segments else NO_TEXT


def json_line(line: Line, limit: int) -> dict[str, Any]:
    """Return the JSON object of a line; raise BadRecordError if it has over `limit` bytes or none."""
    if line.content is None:
        raise BadRecordError(f"longer than {limit:,} bytes")
    return json_object(line.content)


def json_object(content: bytes) -> dict[str, Any]:
    """Return a JSON object; raise BadRecordError with the reason if the bytes are not one."""
    try:
        record = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadRecordError(f"not UTF-8 at byte {error.start:,}") from error
    except (ValueError, RecursionError) as error:
        raise BadRecordError(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise BadRecordError("not a JSON object")
    return record


def name_in(record: Mapping[str, Any], field: str) -> str:
    """Return the name in a field of a record, on one line; raise BadRecordError with the reason if it is not a name."""
    name = record.get(field)
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise BadRecordError(f"field {field!r} is missing or neither a string nor a whole number")
    require_characters(str(name))
    name = one_line(str(name))
    if not 0 < len(name) <= LONGEST_ID:
        raise BadRecordError(f"field {field!r} is blank or has more than {LONGEST_ID} characters")
    return name


def require_characters(text: str) -> None:
    """Raise BadRecordError for a text of JSON that UTF-8 cannot hold."""
    if _LONE_SURROGATE.search(text):
        raise BadRecordError("half of a surrogate pair, which is not a character")


# One document per file, `text/NAME`, from files and from the .txt files of folders.
# Bad: a file of an unknown encoding, plainly not text, or longer than `MAX_BYTES`. Dropped: a file without text.
TEXT = Source(
    summary="text files, one document each",
    find=lambda paths: named("text", text_files(paths)),
    pieces=whole_file,
    read=_read_text,
    pairing=neighbours,
    options=(ENCODING, PAIRS),
    example="notes/ --out data/notes",
)

# One document per line, `jsonl/FILE/ID`; blank lines are skipped. Whether a file's own ids are unique is not checked.
# Bad: a line that is not such a record or longer than `MAX_BYTES`. Dropped: a line whose text is blank.
JSONL = Source(
    summary="JSON lines, one document each",
    example="a.jsonl b.jsonl.zst --out data/mine --text body",
    find=named_files("jsonl"),
    pieces=lambda file, _: line_pieces(file.path, MAX_BYTES),
    read=_read_line,
    pairing=neighbours,
    options=(
        Option("text", "text", "field with the text of a document", "FIELD"),
        Option("id", None, "field with its id, instead of the line number", "FIELD"),
        PAIRS,
    ),
)
