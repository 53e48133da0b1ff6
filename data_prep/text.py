"""Text of any origin: plain files, a document each, and JSON lines, a document a line.

At most one document is in memory, and what is made of it: some 20 bytes for each of its bytes, and at most 60 in text
that is made to that end (1 GiB for `LONGEST`); of a folder, also the names of its files.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_prep.compressed import FORMATS, EmptyFileError, lines, open_input
from data_prep.document import Document
from data_prep.errors import InputError
from data_prep.files import os_errors_as_input_errors
from data_prep.record import Bad, Dropped
from data_prep.reflow import one_line, paragraphs

LONGEST = 1 << 24  # bytes of a document
LONGEST_ID = 200  # characters
EMPTY = Dropped("empty")

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_text(paths: Iterable[Path]) -> Iterator[Document | Bad | Dropped]:
    """A document a file, `text/NAME`, of files and of folders' .txt files; its segments are paragraphs.

    Yields:
        Bad where a file is not UTF-8 or longer than `LONGEST`, Dropped where there is no text in it.

    Raises:
        InputError: a file cannot be read or inflated, or a folder has no .txt file.
    """
    names: Counter[str] = Counter()
    for path, name in text_files(paths):
        content = whole_text(path)
        if not isinstance(content, str):
            yield content
        elif segments := paragraphs(content):
            yield Document(numbered(f"text/{name}", names), tuple(segments))
        else:
            yield EMPTY


def read_jsonl(paths: Iterable[Path], text: str, id_: str | None = None) -> Iterator[Document | Bad | Dropped]:
    """A document a line, of its field `text`: `jsonl/FILE/ID` by its field `id_`, or by the number of the line.

    Its segments are paragraphs; blank lines are passed over. Whether a file's own ids are unique is not looked at.

    Yields:
        Bad for a line that is not such a record or longer than `LONGEST`, Dropped where its text is blank.

    Raises:
        InputError: a file cannot be read or inflated, or is empty.
    """
    names: Counter[str] = Counter()
    for path in paths:
        file = numbered(f"jsonl/{path.name}", names)
        with open_input(path) as stream:
            for number, line in lines(stream, LONGEST):
                if line is not None and not line.removeprefix(codecs.BOM_UTF8).strip():
                    continue
                try:
                    name, content = _fields(line, number, text, id_)
                except ValueError as error:
                    yield Bad(str(path), f"line {number:,}", str(error))
                    continue
                segments = paragraphs(content)
                yield Document(f"{file}/{name}", tuple(segments)) if segments else EMPTY


def _fields(line: bytes | None, number: int, text: str, id_: str | None) -> tuple[str, str]:
    """The name and the text of a record; ValueError with the reason why it is none."""
    if line is None:
        raise ValueError(f"more than {LONGEST:,} bytes")
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start:,} of the line") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    content, name = record.get(text), record.get(id_) if id_ else number
    if not isinstance(content, str):
        raise ValueError(f"no field {text!r} of text")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError(f"no field {id_!r} of text or a whole number")
    if _LONE_SURROGATE.search(f"{content}{name}"):
        raise ValueError("half of a surrogate pair, which is no character")
    name = one_line(str(name))
    if not 0 < len(name) <= LONGEST_ID:
        raise ValueError(f"field {id_!r} is blank or has more than {LONGEST_ID} characters")
    return name, content


def whole_text(path: Path) -> str | Bad | Dropped:
    """What a file says, inflated and without a byte-order mark; Bad and Dropped as `read_text` yields them.

    Raises:
        InputError: it cannot be read or inflated.
    """
    try:
        with open_input(path) as stream:
            return decoded(stream.read(LONGEST + 1), str(path), "the file")
    except EmptyFileError:
        return EMPTY


def decoded(content: bytes, file: str, where: str) -> str | Bad:
    """UTF-8 of at most `LONGEST` bytes, without a byte-order mark."""
    if len(content) > LONGEST:
        return Bad(file, where, f"more than {LONGEST:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Bad(file, where, f"not UTF-8 at byte {error.start:,}")


def numbered(name: str, names: Counter[str]) -> str:
    """The name on one line, with #2, #3, ... where `names` shows that it has been before."""
    name = one_line(name)
    names[name] += 1
    return f"{name}#{names[name]}" if names[name] > 1 else name


def text_files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """The files that are named, and the .txt files, compressed or not, under folders that are, with their names there.

    Raises:
        InputError: a folder has none.
    """
    endings = tuple(f".txt{suffix}" for suffix in ("", *(s for known in FORMATS for s in known.suffixes)))
    for path in paths:
        with os_errors_as_input_errors(path, "list"):
            if path.is_dir():
                within = sorted(file for file in path.rglob("*") if file.name.lower().endswith(endings))
                found = [(file, file.relative_to(path).as_posix()) for file in within if not file.is_dir()]
            else:
                found = [(path, path.name)]
        if not found:
            raise InputError(f"{path}: no .txt file in this folder; name the folder that holds the texts")
        yield from found
