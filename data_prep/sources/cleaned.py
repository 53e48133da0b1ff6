"""Cleaned text that `--text-only` wrote, the second step of a preparation: the list of its files, and their lines."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.common.json_file import Count, Sha256, read_json
from deepsiam.data_prep.common.provenance import Made, Record, require_every_part
from deepsiam.data_prep.sources.document import BadRecordError, Document
from deepsiam.data_prep.sources.plain_text import Line, json_line, line_pieces, require_characters
from deepsiam.data_prep.sources.source import Choices, File, Piece, Source, named

LONGEST_LINE = 1 << 24  # bytes; a document has at most 1 MiB of text
FOLDER = "text"  # in the --out of the first step
NAME = "texts.json"
FORMAT = 1


class CleanedFile(Record):
    """One file, with its counts, size and SHA-256 (hex)."""

    name: Annotated[str, StringConstraints(pattern=r"^text-[0-9]{6}\.jsonl\.gz$")]
    documents: Count
    segments: Count
    characters: Count
    bytes: Count
    sha256: Sha256


class CleanedText(Record):
    """`texts.json`: the files of a folder of cleaned text, and how they were made."""

    format: Literal[1]
    source: Made
    files: list[CleanedFile]


def load(folder: Path) -> CleanedText:
    """Read and check FOLDER/texts.json; raise InputError where it is missing or damaged."""
    return read_json(folder / NAME, CleanedText, "prepare the text again")


def folder_of(directory: Path) -> Path | None:
    """Return `directory` or `directory`/text, whichever has cleaned text; None if neither has."""
    return next((folder for folder in (directory, directory / FOLDER) if (folder / NAME).is_file()), None)


def problems(folder: Path, hashed: bool = True) -> Iterator[str]:
    """Yield a line for every file of a folder that differs from texts.json; `hashed`: in its SHA-256, too."""
    files = load(folder).files
    for file in files:
        path = folder / file.name
        if not path.is_file():
            yield f"{path}: is missing; copy it again, or prepare the text again"
        elif path.stat().st_size != file.bytes or (hashed and sha256_of(path) != file.sha256):
            yield f"{path}: is damaged (its size or SHA-256 is not the recorded one); prepare or copy it again"
    for path in sorted({*folder.glob("text-*.jsonl.gz")} - {folder / file.name for file in files}):
        yield f"{path}: is not listed in {NAME}; remove it, or prepare the text again"


def _find(paths: Sequence[Path]) -> Iterator[File]:
    """Yield the listed files of folders of cleaned text, or of their parents."""
    folders = []
    for path in paths:
        folder = folder_of(path)
        if folder is None:
            raise InputError(f"{path}: no cleaned text here ({NAME}); name the --out of a command with --text-only")
        for problem in problems(folder, hashed=False):
            raise InputError(problem)
        folders.append(folder)
    texts = {folder: load(folder) for folder in folders}
    _require_whole({folder: text.source for folder, text in texts.items()})
    return named(
        "cleaned",
        (
            (folder / file.name, f"{folder.resolve().parent.name}/{file.name}")
            for folder in folders
            for file in texts[folder].files
        ),
    )


def _require_whole(sources: dict[Path, Made]) -> None:
    """Raise InputError where the parts of a preparation do not make up the whole."""
    divisions = defaultdict(list)
    for folder, source in sources.items():
        divisions[source.command, source.options.model_dump_json(), source.inputs.sha256, source.part.of].append(folder)
    for (*_, of), folders in divisions.items():
        if of > 1:
            require_every_part([sources[folder].part.number for folder in folders], of, folders[0])


def require_whole(path: Path, listed: CleanedFile) -> None:
    """Raise InputError where a file is not the one that texts.json lists."""
    if sha256_of(path) != listed.sha256:
        raise InputError(f"{path}: its SHA-256 is not the one in {NAME} (damaged); prepare or copy it again")


def _pieces(file: File, _: Choices) -> Iterator[Piece]:
    require_whole(file.path, next(entry for entry in load(file.path.parent).files if entry.name == file.path.name))
    return line_pieces(file.path, LONGEST_LINE)


def document(line: Line) -> Document:
    """Return the document of a line that `texts.line` made; raise BadRecordError with what is wrong with the line."""
    record = json_line(line, LONGEST_LINE)
    name, text, about = record.get("id"), record.get("text"), record.get("metadata")
    if not isinstance(name, str) or not isinstance(text, str) or not text or not isinstance(about, dict):
        raise BadRecordError("lacks an id, a text or metadata")
    segments = tuple(text.split("\n"))
    group, title = _text(about, "group"), _text(about, "title")
    for characters in (name, text, group, title):
        require_characters(characters)
    headings, context = about.get("headings"), about.get("context")
    if type(context) is not int or not 0 <= context < len(segments):
        raise BadRecordError("metadata.context is not a number of leading segments")
    if not isinstance(headings, list) or not all(type(number) is int for number in headings):
        raise BadRecordError("metadata.headings is not a list of numbers")
    if sorted(set(headings)) != headings or (headings and not 0 <= headings[0] <= headings[-1] < len(segments)):
        raise BadRecordError("metadata.headings are not numbers of segments, in order")
    return Document(name, segments, tuple(headings), context, group, title)


def _text(about: dict[str, Any], key: str) -> str:
    value = about.get(key, "")
    if not isinstance(value, str):
        raise BadRecordError(f"metadata.{key} is not a text")
    return value


def _are(kind: str, files: Sequence[File], _: Choices) -> bool:
    """Return whether the files' texts are pairs, or dialogues, as `kind` says; raise InputError where only some are."""
    answers = {getattr(load(folder).source, kind) for folder in {file.path.parent for file in files}}
    if len(answers) > 1:
        raise InputError(
            f"some of the texts are {kind} and some are not; prepare them apart, and mix them in the recipe"
        )
    return True in answers


# The documents as they were before tokenising: ids, groups, headings and context are those of the first step, and
# sentences are not split again.
CLEANED = Source(
    summary="cleaned text that an earlier command wrote with --text-only",
    find=_find,
    pieces=_pieces,
    read=lambda _, piece, __: [document(piece.content)],
    paragraphs=False,
    dialogues=partial(_are, "dialogues"),
    pairs=partial(_are, "pairs"),
    later=4.0,
    example="data/wikipedia --out data/wikipedia_bert --tokenizer data/bert-base-uncased",
)
