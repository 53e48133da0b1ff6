"""Tars of samples by anyone, as webdataset defines them: members `KEY.EXT` of the same key, one after the other.

The library groups the members. They are read by tar_stream.py, in bounded memory, and understood as text and JSON only:
no decoder of the library is used, so nothing is unpickled or run, and no address reaches its `pipe:`.
"""

import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deepsiam.data_prep.common.errors import CutOffError, InputError, StoppedError
from deepsiam.data_prep.common.webdataset_without_torch import expand_urls, group_by_keys
from deepsiam.data_prep.sources.compressed import lines, open_input
from deepsiam.data_prep.sources.document import Bad, BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.plain_text import MAX_BYTES, NO_TEXT, decoded, json_object, name_in, require_characters
from deepsiam.data_prep.sources.source import Choices, File, Option, Piece, Source, finder, numbered
from deepsiam.data_prep.sources.tar_stream import members
from deepsiam.data_prep.text.normalize import legible_line, one_line
from deepsiam.data_prep.text.paragraphs import paragraphs

KIND = "webdataset"
SEGMENTS = ("sentences", "utterances")

_NAME = re.compile(r".*\.tar", re.IGNORECASE | re.DOTALL)
_MEMBER = re.compile(r"(?P<extension>[\w.-]+)(?::(?P<key>.+))?", re.DOTALL)


class Sample(NamedTuple):
    """A sample: its id, and its members with text or JSON by extension; None is a link, a device or the like."""

    id: str
    members: Mapping[str, bytes | None]


class _Text(NamedTuple):
    """Where the text of a sample is: the extension of a member, and the field if that member is JSON."""

    extension: str
    field: str

    @property
    def is_json(self) -> bool:
        return self.extension.endswith(("json", "jsonl"))


def expand(location: str) -> list[str]:
    """Return the tars that a pattern stands for, as `tars-{0000..0099}.tar` or `a.tar::b.tar`."""
    if Path(location).exists():
        return [location]
    try:
        return list(expand_urls(location))
    except (ValueError, AssertionError) as error:
        raise InputError(f"{location}: {error}; write many tars as tars-{{0000..0099}}.tar") from None


def samples(file: File, extensions: Collection[str]) -> Iterator[Piece]:
    """Yield the samples of a tar with their members of the `extensions`; if it is damaged, a Bad at the end."""
    names: Counter[str] = Counter()
    repeated: set[str] = set()  # why the open sample is bad

    def note(_: Exception) -> bool:
        repeated.add("has two members of one name")
        return True

    try:
        for sample in group_by_keys(
            _files(file.path), suffixes={*extensions} | {f"{name}.gz" for name in extensions}, handler=note
        ):
            key = one_line(sample["__key__"])
            name, where = numbered(f"{file.name}/{key}", names), f"sample {key}"
            parts = {extension: part for extension, part in sample.items() if not extension.startswith("__")}
            content = Bad(str(file.path), where, repeated.pop()) if repeated else Sample(name, parts)
            yield Piece(where, sum(len(part or b"") for part in parts.values()), content)
    except (CutOffError, StoppedError):
        raise
    except InputError as error:
        where = "the rest of the tar"
        yield Piece(where, 0, Bad(str(file.path), where, str(error).removeprefix(f"{file.path}: ")))


def _files(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the members of a tar in the form that `group_by_keys` takes."""
    with open_input(path) as stream:
        for member in members(stream, path, MAX_BYTES + 1):
            yield {"fname": member.name, "data": member.content if member.regular else None, "__url__": path}


def _read(file: File, piece: Piece, choices: Choices) -> Iterator[Document | Bad | Dropped]:
    sample, text = piece.content, _text(choices)
    content = member(sample, text.extension)
    about = member(sample, "json") if choices["group"] and not text.is_json else content
    if not text.extension.endswith("jsonl"):
        yield _document(file, piece.where, sample.id, content, about, choices)
        return
    for number, line in lines(io.BytesIO(content), MAX_BYTES):
        if line and line.strip():
            yield _document(file, f"{piece.where}, line {number:,}", f"{sample.id}/{number}", line, line, choices)


def member(sample: Sample, extension: str) -> bytes:
    """Return a member of a sample, inflated; raise BadRecordError, with the reason, if it is unusable."""
    name = next((name for name in (extension, f"{extension}.gz") if name in sample.members), None)
    if name is None:
        raise BadRecordError(f"has no member .{extension}")
    content = sample.members[name]
    if content is None:
        raise BadRecordError(f"its .{name} is not a regular file")
    if name != extension and len(content) <= MAX_BYTES:
        try:
            with gzip.open(io.BytesIO(content)) as inflated:
                content = inflated.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise BadRecordError(f"its .{name} is damaged ({error})") from None
    if len(content) > MAX_BYTES:
        raise BadRecordError(f"its .{name} has more than {MAX_BYTES:,} bytes")
    return content


def _document(
    file: File, where: str, name: str, content: bytes, about: bytes, choices: Choices
) -> Document | Bad | Dropped:
    """Return the document of a text or a JSON object, whose group is named in the JSON object `about`."""
    place, group, guessed = _text(choices), choices["group"], ""
    try:
        if place.is_json:
            text = json_object(content).get(place.field)
        else:
            text, guessed = decoded(content, choices)
        segments = _segments(text, place.field, choices["segments"])
        group = f"{KIND}/{name_in(json_object(about), group)}" if group else ""
    except BadRecordError as error:
        return Bad(str(file.path), where, str(error))
    return Document(name, segments, group=group, guessed=guessed) if segments else NO_TEXT


def _segments(text: Any, field: str, kind: str) -> tuple[str, ...]:
    """Return the paragraphs of a text; its lines, where `kind` says what a line is; or the items of a list."""
    parts = text.split("\n") if isinstance(text, str) else text
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise BadRecordError(f"field {field!r} is missing or neither a string nor a list of strings")
    require_characters("".join(parts))
    if isinstance(text, str) and not kind:
        return tuple(paragraphs(text))
    return tuple(filter(None, map(legible_line, parts)))


def _text(choices: Choices) -> _Text:
    member = _MEMBER.fullmatch(choices["text"])
    assert member  # `_known_text` has checked it
    return _Text(member["extension"].lower(), member["key"] or "text")


def _known_text(value: str) -> str:
    if not _MEMBER.fullmatch(value):
        raise InputError(f"--text: {value!r} is not an extension; write txt, json:FIELD or jsonl:FIELD")
    return value


def _known_segments(value: str) -> str:
    if value not in ("", *SEGMENTS):
        raise InputError(f"--segments: {value!r} is not one of {', '.join(SEGMENTS)}")
    return value


# One document per sample, `webdataset/TAR/KEY`, or per line of its .jsonl, `webdataset/TAR/KEY/LINE`.
# Bad: a sample without the member or field, of which two members have one name, or whose member is a link, damaged or
# longer than `MAX_BYTES`, inflated; and once for a damaged tar, what is after the damage. Dropped: one without text.
WEBDATASET = Source(
    summary="tars of samples, as webdataset reads them",
    find=finder(KIND, _NAME, "no .tar file in this folder; name the folder with the tars"),
    pieces=lambda file, choices: samples(file, {_text(choices).extension, *(["json"] if choices["group"] else [])}),
    read=_read,
    paragraphs=lambda choices: not choices["segments"],
    dialogues=lambda _, choices: bool(choices["segments"] == "utterances"),
    options=(
        Option("text", "txt", "member with the text: txt, json:FIELD, jsonl:FIELD (txt)", "EXT[:FIELD]", _known_text),
        Option("group", "", "field of the JSON that names the thread, book or page of a sample", "FIELD"),
        Option(
            "segments",
            "",
            "what a line of the text, or an item of a list in JSON, is: sentences or utterances",
            "KIND",
            _known_segments,
        ),
    ),
    expand=expand,
    example="'tars-{0000..0099}.tar' --out data/mine --text json:body",
)
