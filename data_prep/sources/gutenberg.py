"""Cut Project Gutenberg's frame around a book: header, small print and licence, in their wordings since 1991.

Lines such as `*** START OF THIS PROJECT GUTENBERG EBOOK` divide a file into parts, which are kept or cut by their kind.
The small print comes before the book in the oldest files, and after it in those of 2001 to 2004. In many of these no
line ends the header: it ends after its last paragraph with words that are typical of one (`_TYPICAL`). A file may have
several books, each with a frame or with half of one.
"""

import re
from itertools import groupby, islice, pairwise
from typing import NamedTuple

# what a part is, by the line before it
HEADER = "before"  # a header: the beginning of a file, or after `The Project Gutenberg EBook of`
BOOK = "book"  # after `*** START OF`
FOOTER = "after"  # after `End of Project Gutenberg's`
PRINT = "small print"  # after `***START**THE SMALL PRINT!`
PRINTED = "after the small print"  # after `*END*THE SMALL PRINT!`: a book, if the small print comes before it

BEGINNING = 10  # lines that are not blank: a header names Project Gutenberg there
GAP = 6  # paragraphs: so many in a row without typical words do not end a header yet
NOTICE = 1_000  # characters: a notice has typical words at least once in so many
SHARE = 0.1  # of the text that may be a book's: with less, the rest is taken for its frame by mistake

_GUTENBERG = re.compile(r"gutenberg", re.I)
_NAME = r"pros?[gjy]e\w{1,4}[ \n-]+gutenberg|digital book"
_WORDS = r"(?:[^\w\n]{1,6}\w{1,30}){0,5}?[^\w\n]{1,6}"
_BEGINS = re.compile(
    rf"(?:[^\w\n]|_){{0,20}}(?:(?<=\*)[^\w\n]{{0,3}}(?:start|begin\w*)|(?-i:START|Beginning)) of{_WORDS}(?:{_NAME})",
    re.I,
)
_HEADS = re.compile(
    r"(?:[^\w\n]|_){0,20}(?:this is )?(?:the )?project gutenberg(?:['’]?s)? (?:(?:e-?text|e-?book|edition)"
    r"(?: of\b|,? (?-i:[^\W_a-z]))|(?<=s )(?-i:[^\W_a-z])[^\n]{0,100}(?:\n[^\n]{0,100})?, by )",
    re.I,
)
# how the line after a book begins, in the languages of the books
_END = (
    r"(?:end(?:e|en|et|s)?|fi[mn]?|fin[eo]|finis|slut+(?:et|en)?|einde?|loppu|l[oõ]pp|endir|koniec|konec|kraj|v[eé]ge"
    r"|sf[aâ]r[sșş]it(?:ul)?|wakas|diwedd|deireadh|amaiera|sonu|τ[εέ]λος|конец|кінець|край|крај|終|完|結束|结束)"
)
_ENDS = re.compile(
    rf"(?:[^\w\n]|_){{0,20}}(?:(?<=\*)[^\w\n]{{0,3}}|(?-i:(?![a-z])))(?:(?:this|here|hier) (?:is )?)?(?:the )?{_END}"
    rf"(?:{_WORDS}(?:{_NAME})|(?: \w{{2,6}}){{1,2}} e-?text)",
    re.I,
)
_SMALL_PRINT = re.compile(r"[ \t]*[*\[].{0,40}\bsmall print", re.I)
_SMALL_PRINT_ENDS = re.compile(r"(?!.*START).*(?:END\b|\bV(?:er)?\.)", re.I)

_TYPICAL = re.compile(
    r"gutenberg|\be-?(?:text|book)s?\b|small print|copyright laws|\bdonations\b|written permission|\bftp\b"
    r"|first posted|ahead of schedule|plain vanilla|updated editions"
    r"|^[^\w\n]{0,20}(?:title|author|translator|editor|illustrator|contributor|edition|language|credits"
    r"|original publication|(?:release|posting) date|character set encoding|most recently updated"
    r"|date (?:first|last|most)[\w ]*)\s*:",
    re.I | re.M,
)


class _Part(NamedTuple):
    """The lines after a dividing line, whose number is `at`."""

    kind: str
    at: int
    lines: list[str]

    @property
    def size(self) -> int:
        return sum(map(len, self.lines))

    def is_notice(self) -> bool:
        return len(_TYPICAL.findall("\n".join(self.lines))) * NOTICE > self.size

    def is_long(self) -> bool:
        return sum(bool(text.strip()) and not line.strip() for line, text in pairwise(["", *self.lines])) > GAP


def without_frame(lines: list[str]) -> tuple[list[str], int]:
    """Return the lines of a book, or of several books of one file, without their frames.

    The second result is the number of a line that, taken for a frame by mistake, cuts nearly all of the book; 0: none.
    """
    book: list[_Part] = []  # surely text
    undecided: list[_Part] = []  # text, unless the next dividing line shows that it is a header
    frames: list[_Part] = []
    for part in _parts(lines):
        begun = [section for section in undecided if section.kind in (BOOK, PRINTED)]
        if part.kind == BOOK or (part.kind == PRINTED and part.size >= sum(section.size for section in undecided)):
            texts = [section for section in begun if not section.is_notice()]
            book += texts
            # this line takes the others away
            frames += [section._replace(at=part.at) for section in undecided if section not in texts]
            undecided = [part]
        elif part.kind == PRINT:
            frames.append(part)
        else:  # a book has ended, after the small print, too, since more was before it; or a header had a title here
            ended = part.kind != HEADER or begun or any(section.is_long() for section in undecided)
            (book if ended else frames).extend(undecided)
            frame, remainder = _divided(part)
            frames += [frame] * bool(frame.lines)
            undecided = [remainder]
    book += undecided
    size = sum(part.size for part in book)
    cut_size = sum(part.size for part in frames if not part.is_notice())
    largest_cut = max(frames, key=lambda part: (not part.is_notice(), part.size), default=None)
    mistaken = largest_cut.at if largest_cut and size <= SHARE * (size + cut_size) else 0
    return [line for part in book for line in part.lines], mistaken


def _parts(lines: list[str]) -> list[_Part]:
    """Divide a file at the lines of frames; a line that begins a book may continue on the next ones."""
    parts = [_Part(HEADER, 1, [])]
    continues = False
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
        if continues and line.strip():
            continues = not line.rstrip().endswith("***")
        elif kind := _kind(f"{line}\n{following}"):
            parts.append(_Part(kind, number, [line] if kind == HEADER else []))
            continues = kind in (BOOK, PRINTED) and not line.rstrip().endswith(("*", "]"))
        else:
            continues = False
            parts[-1].lines.append(line)
    return parts


def _kind(line: str) -> str:
    """Return which part begins after a line, which has the next one behind it; "" if none."""
    text = line.lower()
    if not ("gutenberg" in text or "small print" in text or "text" in text or "digital book" in text):
        return ""  # as nearly always, at a fifth of the cost
    if _BEGINS.match(line):
        return BOOK
    if _ENDS.match(line):
        return FOOTER
    if _SMALL_PRINT.match(line):
        return PRINTED if _SMALL_PRINT_ENDS.match(line) else PRINT
    return HEADER if _HEADS.match(line) else ""


def _divided(part: _Part) -> tuple[_Part, _Part]:
    """Split a part into its frame, up to its last typical paragraph, and the rest; after a book, a short rest goes."""
    end = _frame_end(part.lines)
    if part.kind == HEADER and not _GUTENBERG.search("\n".join(islice(filter(str.strip, part.lines), BEGINNING))):
        end = 0
    frame, remainder = part._replace(lines=part.lines[:end]), part._replace(lines=part.lines[end:])
    return (frame, remainder) if part.kind == HEADER or remainder.is_long() else (part, remainder._replace(lines=[]))


def _frame_end(lines: list[str]) -> int:
    """Return how many lines belong to the frame: up to the last paragraph with typical words."""
    end = at = gap = 0
    for blank, run in groupby(lines, key=lambda line: not line.strip()):
        paragraph = list(run)
        at += len(paragraph)
        if not blank:
            gap += 1
            if _TYPICAL.search("\n".join(paragraph)):
                end, gap = at, 0
            elif gap > GAP:
                break
    return end
