"""What a published format provides: texts, and groups of labelled candidates, each with the line it is from."""

import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import os_errors_as_input_errors
from deepsiam.data_prep.sources.compressed import lines, open_input

LONGEST_LINE = 1 << 27  # bytes; a damaged file may have no line ends
LARGEST_LABEL = 3.4e38  # nearly that of fp32
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ENDING = re.compile(r"(-\d+-of-\d+)?(\.(jsonl?|tsv|csv|txt|parquet|gz|bz2|xz|zst))*$", re.IGNORECASE)
SPLIT_WORDS = {
    "train": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "val": "dev",
    "trial": "dev",  # SICK
    "devel": "dev",
    "development": "dev",
    "held": "dev",  # the folder held_out of a prepared data set
    "test": "test",
    "eval": "test",
}


class Where(NamedTuple):
    """A line of a file, from 1, and, if lines are not enough, an item (`element 7` of a JSON array, `row 7`)."""

    file: Path
    line: int  # 0 in a file without lines
    item: str = ""

    def __str__(self) -> str:
        """Return the place in the form that compilers print."""
        line = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{line}: {self.item}" if self.item else line

    def before(self, later: "Where") -> str:
        """Return the place as a message about a later one names it: without the file, if both are in it."""
        if self.file != later.file:
            return f"in {self}"
        return f"on line {self.line}" if self.line else f"in {self.item}"


class Text(NamedTuple):
    """A document or a query; its parts are the turns of a dialogue, clicked titles, or just one."""

    id: str
    parts: Sequence[str]
    where: Where


class Labelled(NamedTuple):
    """Candidates of a query by their ids, each with a label, and maybe a teacher's score (NaN: none)."""

    query: str
    candidates: Sequence[str]
    labels: Sequence[float]
    where: Where
    scores: Sequence[float] | None = None  # None: no candidate has one


class Unlisted(Labelled):
    """Documents that are judged for a query but are not among its candidates, so that no system can rank them."""


class Format(ABC):
    """A reader of files in one format. Every iterator can be created several times; a bad line raises InputError.

    Attributes:
        summary: the files that it reads, for the command's help.
        repeats: whether a text may occur several times, as in files of triples (True; "queries": only queries may). The
            first occurrence is used; a different text with the same id is refused.
        item_groups: whether each Labelled is its own group (a dialogue, an impression); else each query is one.
        mined: whether negatives were mined or sampled. If so, the highest label of a query-document pair is used;
            if not, and groups are not whole, two different labels of a pair are refused.
        labelled: whether there are queries and splits; without them the collection is only documents.
        classes: the names of the classes that labels number; empty if labels are relevance or scores.
        takes_columns: whether the names of columns may be given, as pairs of role and name (text_columns.py).
        paths: every file that is read.
        by_split: the files that the groups of each split are read from.
        by_part: those that the corpus and the queries are read from, where these are not all files: their sizes tell
            the time left.
    """

    summary: ClassVar[str]
    repeats: bool | Literal["queries"] = False
    item_groups: ClassVar[bool] = False
    mined: ClassVar[bool] = False
    labelled: ClassVar[bool] = True
    classes: Sequence[str] = ()
    takes_columns: ClassVar[bool] = False
    paths: Sequence[Path]
    by_split: Mapping[str, Sequence[Path]]
    by_part: Mapping[str, Sequence[Path]] = MappingProxyType({})

    @abstractmethod
    def __init__(self, inputs: Sequence[Path], columns: Sequence[tuple[str, str]] = ()) -> None:
        """Find the files among the inputs; raise InputError where one is missing."""

    @abstractmethod
    def corpus(self) -> Iterator[Text]:
        """Yield the documents."""

    @abstractmethod
    def queries(self) -> Iterator[Text]:
        """Yield the queries."""

    @abstractmethod
    def groups(self, split: str) -> Iterator[Labelled]:
        """Yield the labelled candidates of a split."""

    def splits(self) -> list[str]:
        """Return the names of the splits; at least one."""
        return list(self.by_split)

    def pool(self, split: str) -> Iterator[tuple[str, Where]] | None:
        """Yield the ids of the documents that a split's queries rank; return None for all documents."""
        return None

    def excluded(self) -> Iterator[tuple[str, Sequence[str], Where]]:
        """Yield the queries with documents that are neither ranked for them nor their negatives: all by their ids."""
        return iter(())

    def is_mined(self, split: str) -> bool:
        """Return whether negatives of a split were mined; a format overrides it if only some of its splits are so."""
        return self.mined

    def remarks(self) -> list[str]:
        """Return lines that tell the user about the files, such as what was left out; may read the files once more."""
        return []


def text_lines(path: Path, *, blank: bool = False) -> Iterator[tuple[Where, str]]:
    """Yield the lines of a file, compressed or not, without line ends and byte-order marks.

    Blank lines are left out, unless `blank` is set. Marks begin the file, or, where files were joined, a later line.
    """
    with open_input(path) as stream:
        for number, line in lines(stream, LONGEST_LINE):
            where = Where(path, number)
            if line is None:
                raise InputError(f"{where}: longer than {LONGEST_LINE:,} bytes; is the file damaged?")
            line = line.removeprefix(BYTE_ORDER_MARK)
            if not blank and not line.strip():
                continue
            try:
                yield where, line.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from error


def json_lines(path: Path) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file."""
    for where, line in text_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error})") from error
        if not isinstance(record, dict):
            raise InputError(f"{where}: not a JSON object")
        yield where, record


def files_by_split(inputs: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files or folders of each split, given as SPLIT=FILE or by the file's name; else it is `train`."""
    files: dict[str, list[Path]] = {}
    for location in inputs:
        split, path = split_and_file(location)
        words = re.split(r"[^a-z]+", path.name.lower())
        split = split or next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), "train")
        files.setdefault(split, []).append(path)
    return files


def joined(files: Mapping[str, Sequence[Path]]) -> Iterator[str]:
    """Report files of a split of which one may be another split, as `dev.small` is in `dev` by a word of its name."""
    for split, paths in files.items():
        stems = sorted({_ENDING.sub("", path.name) for path in paths})
        for stem, longer_stem in pairwise(stems):
            if longer_stem.startswith(stem) and not longer_stem[len(stem)].isalnum():
                yield f"split {split}: joins {stem} and {longer_stem}; write SPLIT=FILE to keep them apart"


def split_and_file(location: Path) -> tuple[str, Path]:
    """Divide SPLIT=PATH; the split is empty if only a path is given. Raise InputError if the path does not exist."""
    split, equals, name = str(location).partition("=")
    if not equals or os.path.exists(location) or not re.fullmatch(r"\w[\w.-]*", split):  # splits are names of folders
        split, name = "", str(location)
    with os_errors_as_input_errors(Path(name), "read"):  # such as a name that is too long
        if not Path(name).exists():
            raise InputError(f"{name}: no such file")
    return split, Path(name)


def suffixes(path: Path) -> list[str]:
    """Return the suffixes of a file's name in lower case: `.csv` and `.gz` of Train.CSV.gz."""
    return [suffix.lower() for suffix in path.suffixes]


def is_json(path: Path) -> bool:
    """Return whether a file's name says that it has JSON, compressed or not."""
    return not {".json", ".jsonl"}.isdisjoint(suffixes(path))


def fields(line: str) -> list[str]:
    """Split a line as trec_eval does, at ASCII white space: other characters, such as U+00A0, are part of an id."""
    return [field.decode() for field in line.encode().split()]


def check_id(name: Any, key: str, where: Where) -> str:
    """Return an id, given as text or as a whole number; raise InputError where it is neither."""
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    if not isinstance(name, str):
        raise InputError(f"{where}: {key!r} is missing, or neither text nor a whole number")
    if not name or any(c in name for c in "\t\r\n"):
        raise InputError(f"{where}: {key} {name!r} is empty or contains a tab or line break")
    return name


def check_text(text: Any, key: str, where: Where, *, may_be_empty: bool = False) -> str:
    """Return a text without the white space around it; raise InputError if it is not a string, or is empty."""
    if not isinstance(text, str):
        raise InputError(f"{where}: {key!r} is missing or not a string")
    if not (text := text.strip()) and not may_be_empty:
        raise InputError(f"{where}: {key!r} is empty")
    return text


def check_list(values: Any, key: str, where: Where, item_type: type = object) -> list[Any]:
    """Return a list; raise InputError for anything else, or an item of another type."""
    if not isinstance(values, list) or not all(isinstance(value, item_type) for value in values):
        raise InputError(f"{where}: {key!r} is missing or not a list{' of objects' * (item_type is dict)}")
    return values


def check_number(number: Any, key: str, where: Where) -> float:
    """Return a label or score, given as number or text; raise InputError if it is not a number that fp32 can hold."""
    try:
        value = as_float(number)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: {key} {number!r:.40} is not a number") from None
    if not abs(value) <= LARGEST_LABEL:
        raise InputError(f"{where}: {key} {number!s:.40} is not a number that fp32 can hold")
    return value


def as_float(number: Any) -> float:
    """Return `float(number)`; raise ValueError also for what Python alone reads as a number, such as 1_0 or ١."""
    if isinstance(number, str) and ("_" in number or not number.strip().isascii()):
        raise ValueError("not a number as other programs write it")
    return float(number)


def check_grade(text: str, key: str, where: Where) -> int:
    """Return a grade of relevance, such as 2, 2.0 or -1; raise InputError if it is not a whole number."""
    try:
        value = as_float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise InputError(f"{where}: {key} {text!r:.40} is not a whole number, as grades are: round them")
    return int(check_number(value, key, where))


def titled_text(record: Mapping[str, Any], keys: Sequence[str], where: Where, *, may_be_empty: bool = False) -> str:
    """Return the title (if any) and text of a record, joined by a space; the text is under one of the keys."""
    key = next((key for key in keys if record.get(key)), None) or next((key for key in keys if key in record), keys[0])
    text, title = record.get(key), record.get("title") or ""
    check_text(text, key, where, may_be_empty=True)
    if not isinstance(title, str):
        raise InputError(f"{where}: 'title' is not a string")
    return check_text(f"{title} {text}", key, where, may_be_empty=may_be_empty)
