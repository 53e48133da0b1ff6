"""Cleaned text that `--text-only` wrote: the second step of a preparation, without the raw dump."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.common.errors import InputError
from data_prep.sources.compressed import open_input
from data_prep.sources.document import Bad, Document
from data_prep.sources.plain_text import Line, json_line, line_pieces
from data_prep.sources.source import Choices, File, Piece, Source

LONGEST_LINE = 1 << 24  # bytes; a document has at most 1 MiB of text
ABOUT = "texts.json"


def _find(paths: Sequence[Path]) -> Iterator[File]:
    """Yield the files of folders of cleaned text, or of their parents."""
    for path in paths:
        folder = path if (path / ABOUT).is_file() else path / "text"
        if not (folder / ABOUT).is_file():
            raise InputError(f"{path}: no cleaned text here ({ABOUT}); name the --out of a command with --text-only")
        for file in sorted(folder.glob("text-*.jsonl.gz")):
            yield File(file, f"cleaned/{folder.resolve().parent.name}/{file.name}")


def _pieces(file: File, _: Choices) -> Iterator[Piece]:
    with open_input(file.path) as stream:
        yield from line_pieces(stream, LONGEST_LINE)


def _read(file: File, piece: Piece, _: Choices) -> Iterator[Document | Bad]:
    try:
        yield document(piece.content)
    except ValueError as error:
        yield Bad(str(file.path), piece.where, str(error))


def document(line: Line) -> Document:
    """Return the document of a line that `texts.line` made; raise ValueError with what is wrong with the line."""
    record = json_line(line, LONGEST_LINE)
    name, text, about = record.get("id"), record.get("text"), record.get("metadata")
    if not isinstance(name, str) or not isinstance(text, str) or not text or not isinstance(about, dict):
        raise ValueError("lacks an id, a text or metadata")
    segments = tuple(text.split("\n"))
    group, title = _text(about, "group"), _text(about, "title")
    headings, context = about.get("headings"), about.get("context")
    if type(context) is not int or not 0 <= context < len(segments):
        raise ValueError("metadata.context is not a number of leading segments")
    if not isinstance(headings, list) or not all(type(number) is int for number in headings):
        raise ValueError("metadata.headings is not a list of numbers")
    if sorted(set(headings)) != headings or (headings and not 0 <= headings[0] <= headings[-1] < len(segments)):
        raise ValueError("metadata.headings are not numbers of segments, in order")
    return Document(name, segments, tuple(headings), context, group, title)


def _text(about: dict[str, Any], key: str) -> str:
    value = about.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"metadata.{key} is not a text")
    return value


def _are(kind: str, files: Sequence[File], _: Choices) -> bool:
    """Return whether the files' texts are of a kind; raise InputError where only some are."""
    found = set()
    for folder in {file.path.parent for file in files}:
        try:
            found.add(bool(json.loads((folder / ABOUT).read_bytes())["source"].get(kind)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{folder / ABOUT}: is damaged; prepare the text again") from None
    if len(found) > 1:
        raise InputError(
            f"some of the texts are {kind} and some are not; prepare them apart, and mix them in the recipe"
        )
    return True in found


# The documents as they were before tokenising: ids, groups, headings and context are those of the first step, and
# sentences are not split again.
CLEANED = Source(
    what="cleaned text that an earlier command wrote with --text-only",
    find=_find,
    pieces=_pieces,
    read=_read,
    paragraphs=False,
    dialogues=partial(_are, "dialogues"),
    pairs=partial(_are, "pairs"),
    later=4.0,
    example="data/wikipedia --out data/wikipedia_bert --tokenizer data/bert-base-uncased",
)
