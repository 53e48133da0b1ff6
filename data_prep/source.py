"""What a source of text is: how its files fall into pieces, which the reader cuts, and what a worker reads in each."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.compressed import FORMATS
from data_prep.document import Document
from data_prep.errors import InputError
from data_prep.files import os_errors_as_input_errors
from data_prep.record import Bad, Dropped
from data_prep.reflow import one_line

Choices = Mapping[str, Any]  # what the user chose of the source's own options, by name


class File(NamedTuple):
    """An input, and the name that the ids of its documents are made of, which no other file of a run has."""

    path: Path
    name: str


class Piece(NamedTuple):
    """A record cut off a file and not yet understood: cheap to make, since one process does it for all workers."""

    where: str  # `line 12`
    size: int  # bytes of text, about; 0 where there is none
    content: Any  # whatever `read` takes; picklable


@dataclass(frozen=True)
class Option:
    """An option of a source on the command line, `--name`."""

    name: str
    default: Any
    help: str
    metavar: str = ""  # "": a switch
    parse: Callable[[str], Any] = str  # gives a value that JSON can hold; raises InputError


@dataclass(frozen=True)
class Join:
    """How documents are made of records that lie far apart, in files of any number.

    `read` yields fragments then: JSON-able lists or tuples whose first item, a text, is shared by those that belong
    together.

    Attributes:
        belongs: that text, of a piece, or any text of its own where the piece is damaged.
        documents: the documents of all fragments with the same first item, in any order of theirs.
    """

    belongs: Callable[[Piece], str]
    documents: Callable[[list[Any]], Iterable[Document | Dropped]]


@dataclass(frozen=True)
class Source:
    """A kind of text. Each function raises InputError for what is wrong with a whole file.

    That is `find` or `pieces`, and `read` where a piece is a file that the worker opens.

    Attributes:
        what: of what it makes shards, for the command's help.
        find: the files of some paths, in an order that depends on nothing but their names.
        pieces: the records of a file in order, which says nothing of their soundness.
        read: the documents (or fragments, see Join) of a record, mostly one; Bad where it is damaged, Dropped where it
            is left out.
        paragraphs: whether segments are paragraphs, to be split into sentences; they are sentences or utterances else.
        dialogues: whether segments are utterances, each an answer to the one before.
        options: the source's own; `pieces` and `read` get what was chosen.
        join: for a source whose documents are not records of one file.
    """

    what: str
    find: Callable[[Sequence[Path]], Iterable[File]]
    pieces: Callable[[File, Choices], Iterator[Piece]]
    read: Callable[[File, Piece, Choices], Iterable[Any]]
    paragraphs: bool = True
    dialogues: bool = False
    options: tuple[Option, ...] = ()
    join: Join | None = None

    def documents(self, paths: Sequence[Path], **chosen: Any) -> Iterator[Document | Bad | Dropped]:
        """All that some paths hold, one after the other, in this process."""
        choices = {option.name: option.default for option in self.options} | chosen
        together: dict[str, list[Any]] = {}
        for file in self.find(paths):
            for piece in self.pieces(file, choices):
                for found in self.read(file, piece, choices):
                    if self.join is None or isinstance(found, Bad | Dropped):
                        yield found
                    else:
                        together.setdefault(found[0], []).append(found)
        for name in sorted(together):
            assert self.join is not None
            yield from self.join.documents(together[name])


def walk(paths: Iterable[Path], wanted: re.Pattern[str], missing: str) -> Iterator[tuple[Path, str]]:
    """The files that are named, and under folders those of a wanted name, compressed or not; with their names there.

    Raises:
        InputError: a folder cannot be listed, or has none; the message says what is `missing`.
    """
    for path in paths:
        with os_errors_as_input_errors(path, "list"):
            if path.is_dir():
                within = sorted(file for file in path.rglob("*") if wanted.fullmatch(_uncompressed(file)))
                found = [(file, file.relative_to(path).as_posix()) for file in within if not file.is_dir()]
            else:
                found = [(path, path.name)]
        if not found:
            raise InputError(f"{path}: {missing}")
        yield from found


def _uncompressed(path: Path) -> str:
    return path.stem if any(path.suffix.lower() in known.suffixes for known in FORMATS) else path.name


def named(kind: str, found: Iterable[tuple[Path, str]]) -> Iterator[File]:
    """Files with the name that their documents get: `KIND/NAME`."""
    names: Counter[str] = Counter()
    for path, name in found:
        yield File(path, numbered(f"{kind}/{name}", names))


def numbered(name: str, names: Counter[str]) -> str:
    """The name on one line, with #2, #3, ... where `names` shows that it has been before."""
    name = one_line(name)
    names[name] += 1
    return numbered(f"{name}#{names[name]}", names) if names[name] > 1 else name
