"""Books: BookCorpusOpen and folders of plain-text books, and the two sentence files of the first BookCorpus.

A book takes as much memory as in plain_text.py; the names of a tar's members are kept, to make their ids unique.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.compressed import lines, open_input
from deepsiam.data_prep.sources.document import Bad, BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.gutenberg import without_frame
from deepsiam.data_prep.sources.pairing import neighbours
from deepsiam.data_prep.sources.plain_text import (
    ENCODING,
    MAX_BYTES,
    NO_TEXT,
    decoded,
    text_files,
    whole_file,
    whole_text,
)
from deepsiam.data_prep.sources.recognise import not_text
from deepsiam.data_prep.sources.source import (
    APPLE_DOUBLE,
    OF_A_MAC,
    PAIRS,
    Choices,
    File,
    Piece,
    Source,
    named_files,
    numbered,
)
from deepsiam.data_prep.sources.tar_stream import members
from deepsiam.data_prep.text.encoding import wide
from deepsiam.data_prep.text.normalize import legible_line, one_line
from deepsiam.data_prep.text.paragraphs import paragraphs

KIND = "bookcorpus"
LINES = 500  # in a document of a sentence file without blank lines
LONGEST_SENTENCE = 1 << 16  # bytes
LONGEST_DOCUMENT = 1 << 22  # bytes between two blank lines of a sentence file: more than a novel has
LONGEST_HEADING = 100  # characters

_TAR = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2|txz|tzst)$", re.I)

EDGE = 40  # paragraphs at the beginning and the end of a book that may be notices
_NOTICE = re.compile(
    r"(?:(?:this )?(?:project gutenberg )?(?:e-?(?:text|book) )?(?:was )?(?:prepared|produced|scanned|transcribed) by"
    r"|(?:original |e-?text )?\W{0,3}transcriber['’]?s? notes?\b|\[?transcribed from|note: project gutenberg"
    r"|\W{0,20}this file should be named|\W{0,20}(?:the )?project gutenberg(?:['’]s)? (?:e-?text|e-?book)"
    r"|copyright\W{0,3}(?:©|\(c\)|\d{4}|by\b|notice)|©|\(c\) ?\d{4}|all rights reserved|(?:e-?)?isbn\b"
    r"|smashwords edition|published (?:by .{0,80})?(?:at|by|on) smashwords|license notes?\W*$"
    r"|this e-?book is licensed|this site is full of free e-?books|thank you for (?:downloading|respecting))",
    re.I,
)

_MARKUP = [  # remains of an e-book's markup, and Gutenberg's emphasis
    (re.compile(r"^<\|/?file name=.*\|>$", re.M), ""),
    (re.compile(r"^[ \t]*(?:[*_-][ \t]*){3,}$", re.M), ""),  # rules between scenes
    (re.compile(r"<<THIS ELECTRONIC VERSION[^<>]{1,2000}>>"), ""),  # a notice between the acts of plays
    (re.compile(r"!\[[^\[\]\n]{0,500}\]\([^()\n]{0,1000}\)"), ""),
    (re.compile(r"\[([^\[\]\n]{1,500})\]\([^()\n]{0,1000}\)"), r"\1"),
    (re.compile(r"\*\*(?=\S)([^*]{1,1000}?)(?<=\S)\*\*"), r"\1"),
    (re.compile(r"_(?<!\w_)(?=\S)([^_]{1,1000}?)(?<=\S)_(?!\w)"), r"\1"),
    (re.compile(r"\\([-\\`*_{}\[\]()#+.!>])"), r"\1"),
]

_NUMBER = (
    r"(?:[IVXLC]+|\d{1,3}|(?:the )?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last)"
    r"|(?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty[ -]?)?(?:one|two|three|four|five|six|seven|eight|nine)"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen)"
)
_NUMBERED = re.compile(
    rf"(?:chapter|book|part|volume|act|scene|canto|stave|section) {_NUMBER}(?!\w)(?P<mark>[.:—–-]*) *(?P<title>.*)",
    re.I,
)
_NUMERAL = re.compile(r"(?:[IVXLC]+|\d{1,3})\.?|[IVXLC]+\. [^a-z]+|[IVXLC]{2,} [^a-z]+")
_MARKED = re.compile(r"^#{1,6} +(?=[^#\s])")
_HUNDREDS = re.compile(r"[1-9]\d\d")
_TITLE = re.compile(
    r"(?:prologue|epilogue|preface|introduction|(?:table of )?contents|foreword|afterword|appendix|interlude"
    r"|dedication|acknowledge?ments?|conclusion|about the author)[.:]?",
    re.I,
)
_SPOKEN = re.compile(r"[\"'“‘]|.*[!?,;\"'”’—-]$")


class _Member(NamedTuple):
    """A book of a tar, with its id."""

    id: str
    content: bytes


class _Run(NamedTuple):
    """Lines of a sentence file, with their numbers; None is one that is too long."""

    name: int  # ends the id of the document
    lines: list[tuple[int, bytes | None]]


def _find_books(paths: Sequence[Path]) -> Iterator[File]:
    """Name a text `bookcorpus/NAME`, and a tar `bookcorpus`, to which the names of its members are appended.

    A second tar is `bookcorpus#2`; so is the first if there are also texts: a tar's reader does not know other names.
    """
    files = list(text_files(paths))
    names = Counter({KIND: int(not all(_is_tar(path) for path, _ in files))})
    for path, name in files:
        yield File(path, numbered(KIND if _is_tar(path) else f"{KIND}/{name}", names))


def _is_tar(path: Path) -> bool:
    return bool(_TAR.search(path.name))


def _books(file: File, choices: Choices) -> Iterator[Piece]:
    if not _is_tar(file.path):
        yield from whole_file(file, choices)
        return
    names: Counter[str] = Counter()
    with open_input(file.path) as stream:
        for member in members(stream, file.path, MAX_BYTES + 1):
            inside = one_line(member.name)
            where = f"member {inside}"
            if member.content.startswith(APPLE_DOUBLE):
                yield Piece(where, 0, OF_A_MAC)
            elif not member.regular:
                yield Piece(where, 0, Bad(str(file.path), where, "not a regular file"))
            elif inside.lower().endswith(".txt"):
                book = _Member(numbered(f"{file.name}/{inside}", names), member.content)
                yield Piece(where, len(book.content), book)
            else:
                yield Piece(where, 0, Dropped("not named .txt"))


def _read_book(file: File, piece: Piece, choices: Choices) -> Iterator[Document | Dropped]:
    if isinstance(piece.content, _Member):
        name, (text, guessed) = piece.content.id, decoded(piece.content.content, choices)
    else:
        name, (text, guessed) = file.name, whole_text(piece.content, choices)
    lines, mistaken = without_frame(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    if mistaken:
        reason = f"nearly all of its text is left out as a notice of Project Gutenberg from its line {mistaken:,} on"
        raise BadRecordError(f"{reason}; remove that line if it is wrong")
    segments, headings = _book(lines)
    yield Document(name, segments, headings, guessed=guessed) if segments else NO_TEXT


def _runs(file: File, _: Choices) -> Iterator[Piece]:
    with open_input(file.path) as stream:
        for number, run in enumerate(_documents(lines(stream, LONGEST_SENTENCE))):
            content = b"\n".join(line or b"" for _, line in run.lines)
            if not number and (kind := not_text(content)):
                raise InputError(f"{file.path}: {kind}")
            if not number and (kind := wide(content)):
                raise InputError(f"{file.path}: is not UTF-8 but {kind}; convert it, as iconv does")
            yield Piece(f"line {run.lines[0][0]:,}", len(content), run)


def _documents(sentences: Iterable[tuple[int, bytes | None]]) -> Iterator[_Run]:
    """Yield the documents of a sentence file: its lines between blank ones, or runs of LINES lines if there are none.

    A document of more than LONGEST_DOCUMENT bytes is cut into runs, too.
    """
    block: list[tuple[int, bytes | None]] = []
    size, blank, marked = 0, False, False

    def runs() -> Iterator[_Run]:
        if marked and size <= LONGEST_DOCUMENT:
            yield _Run(block[0][0], block)
            return
        for number, run in groupby(block, key=lambda line: (line[0] - 1) // LINES):
            part = list(run)
            yield _Run(part[0][0] if marked else number, part)

    for number, line in sentences:
        if line is not None and _is_blank(line):
            blank = True
            continue
        if blank and block:
            marked = True
            yield from runs()
            block, size = [], 0
        if size > LONGEST_DOCUMENT and (number - 1) % LINES == 0:  # of so much, no more is kept than a run
            yield from runs()
            block = []
        blank = False
        block.append((number, line))
        size += len(line or b"")
    yield from runs() if block else ()


def _is_blank(line: bytes) -> bool:
    return not b"!" <= line[:1] <= b"~" and not legible_line(
        line.decode("utf-8", "backslashreplace").removeprefix("\ufeff")
    )


def _read_run(file: File, piece: Piece, _: Choices) -> Iterator[Document | Bad]:
    segments: list[str] = []
    for number, line in piece.content.lines:
        where = f"line {number:,}"
        if line is None:
            yield Bad(str(file.path), where, f"more than {LONGEST_SENTENCE:,} bytes")
            continue
        try:
            segments += filter(None, [legible_line(line.decode("utf-8-sig"))])
        except UnicodeDecodeError as error:
            yield Bad(str(file.path), where, f"not UTF-8 at byte {error.start:,}")
    if segments:
        yield Document(f"{file.name}/{piece.content.name}", tuple(segments))


def _book(lines: list[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the segments of a book, and the numbers of those that are headings."""
    content = "\n".join(_set_apart(lines))
    for markup, replacement in _MARKUP:
        content = markup.sub(replacement, content)
    parts = paragraphs(content)
    # a number on its own line begins a section, or in some scans a page; only page numbers reach hundreds
    if any(_HUNDREDS.fullmatch(paragraph) for paragraph in parts):
        parts = [paragraph for paragraph in parts if not paragraph.isdecimal()]
    segments: list[str] = []
    headings: list[int] = []
    for index, paragraph in enumerate(parts):
        if min(index, len(parts) - 1 - index) < EDGE and _NOTICE.match(paragraph):
            continue
        if _is_heading(paragraph, after_heading=bool(headings) and headings[-1] == len(segments) - 1):
            headings.append(len(segments))
            paragraph = _MARKED.sub("", paragraph, count=1)
        segments.append(paragraph)
    return tuple(segments), tuple(headings)


def _set_apart(lines: list[str]) -> Iterator[str]:
    """Put blank lines around certain headings: in some books the text follows them without one."""
    for line in lines:
        bare = line.strip()
        numbered = _NUMBERED.fullmatch(bare) if len(bare) <= LONGEST_HEADING else None
        if _MARKED.match(bare) or (numbered and (not numbered["title"] or _is_title(numbered["title"]))):
            yield from ("", line, "")
        else:
            yield line


def _is_heading(paragraph: str, after_heading: bool) -> bool:
    if len(paragraph) > LONGEST_HEADING:
        return False
    if numbered := _NUMBERED.fullmatch(paragraph):
        title = numbered["title"]
        return paragraph[0].isupper() and (not title or bool(numbered["mark"]) or not title[0].islower())
    if _MARKED.match(paragraph) or _NUMERAL.fullmatch(paragraph) or _TITLE.fullmatch(paragraph):
        return True
    return not _SPOKEN.match(paragraph) and (paragraph.isupper() or (after_heading and _is_title(paragraph)))


def _is_title(text: str) -> bool:
    """Return whether a text and each of its longer words begin with a capital, and it does not end like a sentence."""
    longer = [word for word in text.split() if len(word) > 4]
    return text[0].isupper() and not text.endswith((".", ",", ";", ":")) and all(word[0].isupper() for word in longer)


# One document per book, `bookcorpus/NAME`, from .txt files, folders of them, and tars, which are not unpacked.
# Its segments are paragraphs and headings, in order. Project Gutenberg's frame, the licence notices at either end and
# the remains of an e-book's markup are cut. Bad: a book of an unknown encoding, plainly not text, or longer than
# `plain_text.MAX_BYTES`, or a member of a tar that is a link, a device or the like. Dropped: a book without text, or a
# member not named .txt.
BOOKCORPUS = Source(
    summary="books: .txt files, folders and tars of them",
    find=_find_books,
    pieces=_books,
    read=_read_book,
    pairing=neighbours,
    options=(ENCODING, PAIRS),
    example="books1.tar.gz --out data/bookcorpus",
)

# A sentence a line. Where blank lines divide a file, each part is a document, `bookcorpus/FILE/LINE`, its first line.
# The files of the first BookCorpus, books_large_p1.txt and p2, do not mark where one of the 11,038 books ends: there, a
# document is a fixed run of lines, `bookcorpus/FILE/NUMBER`. One in 13 contains the end of a book, as a book has 6,700
# lines on average. Longer runs would mix books more often, and shorter ones would split more texts: 500 lines make 13
# stretches of 512 tokens. A line that is not UTF-8 or too long is Bad. Documents are named by line numbers, so bad
# lines shift none.
BOOKCORPUS_SENTENCES = Source(
    summary="a sentence a line: the first BookCorpus, or documents with blank lines between",
    find=named_files(KIND),
    pieces=_runs,
    read=_read_run,
    paragraphs=False,
    pairing=neighbours,
    options=(PAIRS,),
    example="books_large_p1.txt books_large_p2.txt --out data/bookcorpus",
)
