"""What a published format gives: texts, and groups of labelled candidates; each says in which line it stands."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from data_prep.common.errors import InputError
from data_prep.sources.compressed import lines, open_input

LONGEST_LINE = 1 << 27  # bytes; a damaged file may have no line ends
LARGEST_LABEL = 3.4e38  # nearly that of fp32
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPLIT_WORDS = {
    "train": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "held": "dev",  # the folder held_out of a prepared data set
    "test": "test",
    "eval": "test",
}


class Where(NamedTuple):
    """A line of a file, from 1; where lines do not tell, an item too (`element 7` of a JSON array, `row 7`)."""

    file: Path
    line: int  # 0 in a file without lines
    item: str = ""

    def __str__(self) -> str:
        """As compilers write it."""
        line = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{line}: {self.item}" if self.item else line


class Text(NamedTuple):
    """A document or a query; its parts are the turns of a dialogue, clicked titles, or just one."""

    id: str
    parts: Sequence[str]
    where: Where


class Labelled(NamedTuple):
    """Candidates of a query by their ids, each with a label."""

    query: str
    candidates: Sequence[str]
    labels: Sequence[float]
    where: Where


class Format(ABC):
    """A reader of files in one format. Every iterator may be taken several times, and raises InputError at a bad line.

    Attributes:
        what: the files that it reads, for the command's help.
        repeats: whether a text may come several times, as in files of triples (True; or "queries", where a document may
            not); the first one counts, and another text with its id is refused.
        whole: whether each Labelled is a group of its own (a dialogue, an impression); else those of one query are one.
        mined: whether negatives were mined or sampled: of several labels of a query and document the highest counts;
            else, unless groups are whole, two different ones are refused.
        classes: the names of the classes that labels number; empty where labels are relevance or scores.
    """

    what: ClassVar[str]
    repeats: bool | Literal["queries"] = False
    whole: ClassVar[bool] = False
    mined: bool = False
    classes: Sequence[str] = ()

    @abstractmethod
    def __init__(self, inputs: Sequence[Path]) -> None:
        """Find the files among the inputs; raise InputError where one is missing."""

    @abstractmethod
    def files(self) -> list[Path]:
        """Every file that is read."""

    @abstractmethod
    def corpus(self) -> Iterator[Text]:
        """Yield the documents."""

    @abstractmethod
    def queries(self) -> Iterator[Text]:
        """Yield the queries."""

    @abstractmethod
    def splits(self) -> list[str]:
        """The names of the splits; at least one."""

    @abstractmethod
    def groups(self, split: str) -> Iterator[Labelled]:
        """Yield the labelled candidates of a split."""

    def pool(self, split: str) -> Iterator[tuple[str, Where]] | None:
        """The ids of the documents that a split is ranked among; None for all of them."""
        return None

    def remarks(self) -> list[str]:
        """What the user should know of the files, a line each: what was left out, for one; may read them once more."""
        return []


def text_lines(path: Path) -> Iterator[tuple[Where, str]]:
    """Yield the lines of a file, compressed or not, without blank ones, line ends and a byte-order mark."""
    with open_input(path) as stream:
        for number, line in lines(stream, LONGEST_LINE):
            where = Where(path, number)
            if line is None:
                raise InputError(f"{where}: longer than {LONGEST_LINE:,} bytes; is the file damaged?")
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if not line.strip():
                continue
            try:
                yield where, line.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from error


def json_lines(path: Path) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield the JSON objects of a file with one on each line."""
    for where, line in text_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error})") from error
        if not isinstance(record, dict):
            raise InputError(f"{where}: not a JSON object")
        yield where, record


def files_by_split(inputs: Sequence[Path]) -> dict[str, list[Path]]:
    """The files or folders of each split: an input is SPLIT=FILE, or the file's name tells; else it is `train`.

    Raises:
        InputError: a file is missing.
    """
    files: dict[str, list[Path]] = {}
    for given in inputs:
        split, path = split_and_file(given)
        words = re.split(r"[^a-z]+", path.name.lower())
        split = split or next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), "train")
        files.setdefault(split, []).append(path)
    return files


def split_and_file(given: Path) -> tuple[str, Path]:
    """Divide SPLIT=PATH; the split is empty where just a path is named. Raise InputError where that is missing."""
    split, equals, name = str(given).partition("=")
    if not equals or given.exists() or not re.fullmatch(r"\w[\w.-]*", split):  # splits are names of folders
        split, name = "", str(given)
    if not Path(name).exists():
        raise InputError(f"{name}: no such file")
    return split, Path(name)


def check_id(name: Any, key: str, where: Where) -> str:
    """Return an id; raise InputError where it is not one."""
    if not isinstance(name, str):
        raise InputError(f"{where}: {key!r} is missing or not a string")
    if not name or any(c in name for c in "\t\r\n"):
        raise InputError(f"{where}: {key} {name!r} is empty or contains a tab or line break")
    return name


def check_text(text: Any, key: str, where: Where) -> str:
    """Return a text without the white space around it; raise InputError where it is not one, or empty."""
    if not isinstance(text, str):
        raise InputError(f"{where}: {key!r} is missing or not a string")
    if not (text := text.strip()):
        raise InputError(f"{where}: {key!r} is empty")
    return text


def check_number(number: Any, key: str, where: Where) -> float:
    """Return a label or score, a number or its text; raise InputError where it is none, or none that fp32 can hold."""
    try:
        value = float(number)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: {key} {number!r:.40} is not a number") from None
    if not abs(value) <= LARGEST_LABEL:
        raise InputError(f"{where}: {key} {number} is not a number that fp32 can hold")
    return value


def titled_text(record: dict[str, Any], keys: Sequence[str], where: Where) -> str:
    """Return title, where there is one, and text of a record, joined by a space; the text is under one of the keys.

    Raises:
        InputError: there is no text, one of them is not a string, or both are empty.
    """
    key = next((key for key in keys if record.get(key)), None) or next((key for key in keys if key in record), keys[0])
    text, title = record.get(key), record.get("title") or ""
    if not isinstance(text, str):
        raise InputError(f"{where}: {key!r} is missing or not a string")
    if not isinstance(title, str):
        raise InputError(f"{where}: 'title' is not a string")
    return check_text(f"{title} {text}", key, where)
