"""A source of text: how one process cuts files into pieces, and how a worker reads the documents of a piece."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import PARTIAL, os_errors_as_input_errors
from deepsiam.data_prep.sources.compressed import FORMATS
from deepsiam.data_prep.sources.document import Bad, BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.pairing import Pairing, pairs_of
from deepsiam.data_prep.text import language_id
from deepsiam.data_prep.text.normalize import one_line

APPLE_DOUBLE = b"\0\5\x16\7"  # how such a file begins
OF_A_MAC = Dropped("a Mac's ._ file")

Choices = Mapping[str, Any]  # the values of the source's own options, by name
EXPECTED_LANGUAGE = "expected_language"  # in the choices that `read` gets: what the stages keep, for a guess


class File(NamedTuple):
    """An input file, and its name, which is unique in a run and begins the ids of its documents."""

    path: Path
    name: str


class Piece(NamedTuple):
    """A record cut from a file but not parsed: cheap to make, since one process does it for all workers."""

    where: str  # `line 12`
    size: int  # approximate bytes of text
    content: Any  # what `read` takes; picklable


@dataclass(frozen=True)
class Option:
    """An option of a source on the command line, `--name`."""

    name: str
    default: Any
    help: str
    metavar: str = ""  # "": a switch
    parse: Callable[[str], Any] = str  # returns a value that JSON can hold; raises InputError
    also: str = ""  # another name of it on the command line


PAIRS = Option("pairs", False, "make pairs to pre-train on, a query and a document, instead of documents")


@dataclass(frozen=True)
class Join:
    """How documents are joined from records anywhere in the files.

    `read` then yields fragments: JSON-able lists or tuples whose first item, a text, names what they are a part of.
    `documents` makes the documents of all fragments with the same first item, whatever the order of the fragments.
    """

    belongs: Callable[[Piece], str]  # that name; for a damaged piece, any text unique to it; "" if it has several
    documents: Callable[[list[Any], Choices], Iterable[Document | Dropped]]


@dataclass(frozen=True)
class Source:
    """A kind of text. A function that opens a file raises InputError if the whole file is damaged.

    `read` yields the documents (or fragments, see Join) of a record, mostly one; Bad if it is damaged (or it raises
    BadRecordError, which says how), Dropped if it is left out. A piece that is Bad or Dropped already is not read.
    `paragraphs`, `dialogues` and `pairs` tell what segments are: paragraphs, to be split into sentences; utterances,
    each an answer to the one before; a query and a document. If one is a function, the files and options decide.
    """

    summary: str  # it reads, for the command's help
    find: Callable[[Sequence[Path]], Iterable[File]]  # in an order that depends only on the names
    pieces: Callable[[File, Choices], Iterator[Piece]]  # the records of a file in order, sound or damaged
    read: Callable[[File, Piece, Choices], Iterable[Any]]
    paragraphs: bool | Callable[[Choices], bool] = True
    dialogues: bool | Callable[[Sequence[File], Choices], bool] = False
    pairs: bool | Callable[[Sequence[File], Choices], bool] = lambda _, choices: bool(choices.get("pairs"))
    pairing: Pairing | None = None  # what the option PAIRS does with documents; None: no such option, or `join` does it
    options: tuple[Option, ...] = ()  # the source's own; `pieces` and `read` get their values
    expand: Callable[[str], Iterable[str]] = lambda location: [location]  # what an input of the command line stands for
    join: Join | None = None  # for a source whose documents are not records of one file
    language: str = ""  # that a source which filters records itself keeps by default; "": a stage filters documents
    later: float = 1.0  # roughly how long tokenising and writing take per second of reading, to estimate the time left
    example: str = ""  # the words of a command that follow the source's name, for its help

    def records(self, file: File, choices: Choices) -> Iterator[Piece]:
        """Yield the pieces of a file; of a Mac's ._ file, which has no text, one that is left out."""
        if is_of_a_mac(file.path):
            yield Piece("the file", 0, OF_A_MAC)
        else:
            yield from self.pieces(file, choices)

    def items(self, file: File, piece: Piece, choices: Choices) -> Iterator[Any]:
        """Yield what is read from a piece, or why it is not."""
        if isinstance(piece.content, Bad | Dropped):
            yield piece.content
            return
        try:
            for item in self.read(file, piece, choices):
                if self.pairing and choices.get("pairs") and isinstance(item, Document):
                    yield from pairs_of(item, self.pairing(item))
                else:
                    yield item
        except BadRecordError as error:
            yield Bad(str(file.path), piece.where, str(error))

    def are_paragraphs(self, choices: Choices) -> bool:
        """Return whether segments are paragraphs."""
        return self.paragraphs if isinstance(self.paragraphs, bool) else self.paragraphs(choices)

    def are_dialogues(self, files: Sequence[File], choices: Choices) -> bool:
        """Return whether the segments of these files are utterances."""
        if self.are_pairs(files, choices):
            return False
        return self.dialogues if isinstance(self.dialogues, bool) else self.dialogues(files, choices)

    def are_pairs(self, files: Sequence[File], choices: Choices) -> bool:
        """Return whether the documents of these files are pairs."""
        return self.pairs if isinstance(self.pairs, bool) else self.pairs(files, choices)

    def choices(self, **values: Any) -> dict[str, Any]:
        """Return the values of all options, with the default of those that are not chosen."""
        choices = {option.name: option.default for option in self.options}
        if self.language:
            choices |= {"language": self.language, "language_threshold": language_id.THRESHOLD}
        return choices | values

    def documents(self, paths: Sequence[Path], **values: Any) -> Iterator[Document | Bad | Dropped]:
        """Yield everything in the paths, in this process."""
        choices = self.choices(**values)
        together: dict[str, list[Any]] = {}
        for file in self.find(paths):
            for piece in self.records(file, choices):
                for item in self.items(file, piece, choices):
                    if self.join is None or isinstance(item, Bad | Dropped):
                        yield item
                    else:
                        together.setdefault(item[0], []).append(item)
        for name in sorted(together):
            assert self.join is not None
            yield from self.join.documents(together[name], choices)


def walk(paths: Iterable[Path], pattern: re.Pattern[str], problem: str) -> Iterator[tuple[Path, str]]:
    """Yield given files, and those in given folders with a wanted name, compressed or not; each with its name."""
    for path in paths:
        with os_errors_as_input_errors(path, "list"):
            if path.is_dir():
                within = sorted(file for file in _below(path, set()) if pattern.fullmatch(uncompressed(file)))
                files = [(file, file.relative_to(path).as_posix()) for file in within]
            else:
                files = [(path, path.name)]
        if not files:
            raise InputError(f"{path}: {problem}")
        yield from files


def _below(folder: Path, seen_folders: set[Path]) -> Iterator[Path]:
    """Yield the files below a folder, but not those of unfinished preparations.

    Linked folders are followed, and each folder is read once: a link may lead back up.
    """
    real_folder = folder.resolve()
    if real_folder in seen_folders:
        return
    seen_folders.add(real_folder)
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_symlink(), path)):  # a folder under its own name
        if path.is_dir():
            yield from _below(path, seen_folders) if path.name != PARTIAL else ()
        else:
            yield path


def finder(kind: str, pattern: re.Pattern[str], problem: str) -> Callable[[Sequence[Path]], Iterator[File]]:
    """Return a `find` for a source of given files and of files in folders, as `walk` yields them."""
    return lambda paths: named(kind, walk(paths, pattern, problem))


def named_files(kind: str) -> Callable[[Sequence[Path]], Iterator[File]]:
    """Return a `find` for a source of given files only."""
    return lambda paths: named(kind, ((path, path.name) for path in paths))


def is_of_a_mac(path: Path) -> bool:
    """Return whether a file is AppleDouble, as a Mac writes `._NAME` beside NAME on other systems' disks."""
    if not path.name.startswith("._") or not path.is_file():
        return False
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        return file.read(len(APPLE_DOUBLE)) == APPLE_DOUBLE


def uncompressed(path: Path) -> str:
    """Return the name of a file without .gz and the like."""
    return path.stem if any(path.suffix.lower() in form.suffixes for form in FORMATS) else path.name


def named(kind: str, files: Iterable[tuple[Path, str]]) -> Iterator[File]:
    """Yield files with the names that begin the ids of their documents: `KIND/NAME`."""
    names: Counter[str] = Counter()
    for path, name in files:
        yield File(path, numbered(f"{kind}/{name}", names))


def numbered(name: str, names: Counter[str]) -> str:
    """Return the name on one line, with #2, #3, ... appended if `names` already counts it."""
    name = one_line(name)
    names[name] += 1
    return numbered(f"{name}#{names[name]}", names) if names[name] > 1 else name
