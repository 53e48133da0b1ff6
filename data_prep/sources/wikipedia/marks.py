"""Marks in the text of a page: holes, where the text of a template is unknown, pronunciations, and quotes.

A sentence with a hole is dropped. A mark is made of control characters, which XML forbids; `without_marks` removes them
from any other text. A hole has a number, so that its template can be named when its sentence is dropped.
"""

import re
from itertools import accumulate

from deepsiam.data_prep.text.sentences import sentences

HOLE = "\x02"
_END = "\x03"
_ASIDE, _ASIDE_END = "\x04", "\x05"  # around a pronunciation
ITALIC, BOLD, BOLD_ITALIC = "\x06", "\x07", "\x08"  # runs of quotes
WALL = "\x0e"  # what parts them
_CHARACTERS = HOLE + _END + _ASIDE + _ASIDE_END + ITALIC + BOLD + BOLD_ITALIC + WALL
_MARK = rf"{HOLE}\d{{1,9}}{_END}"
_HOLE = re.compile(_MARK)
_NAME = "Name"  # stands for a hole while sentences are split: most holes are nouns or numbers

# Holes with lines of their own, such as displayed formulas. If the next line begins with a small letter, the sentence
# goes on there; an indented hole may also end it. Any other is a box, or a notice, which is not of a sentence.
_MARK_RUN = rf"(?:{_MARK}[ \t.,;]*)+"
_GOES_ON = re.compile(rf"(?<=[^\s=.!?>])\n[ \t:*#]*({_MARK_RUN})\n+[ \t:]*(?=[a-zß-öø-ÿ])")
_ENDED_BY = re.compile(rf"(?<=[^\s=.!?:;>])\n[ \t]*:+[ \t]*({_MARK_RUN})(?=\n|\Z)")
_BOX = re.compile(rf"^[ \t:*#]*{_MARK_RUN}$", re.MULTILINE)

_BRACKET = re.compile(f"[(){_ASIDE}{_ASIDE_END}]")
_LABEL = re.compile(r"(?:\b(?:pronounced|pronunciation|ipa|locally|also|or|uk|us)[\s:]*){1,4}$", re.IGNORECASE)
_LONGEST_LABEL = 60
_IN_BRACKETS = re.compile(r"(?<![^\s(])\(([^()]*)\)")
_ITEM = re.compile(rf"(?<![^,;])\s*(?:{_MARK}\s*)+(?![^,;])")
_AFTER_STOP = re.compile(rf"(?<=[.!?])([\"'”’)\]]{{0,3}})(?:{_MARK})+(?=\s|$)")
_AT_START = re.compile(rf"(?:{_MARK}\s*)+(?=[\"'“‘]{{0,3}}([^\W\d_]))")
_ANY_WORD = re.compile(r"\w")


def without_marks(text: str) -> str:
    """Return a text without the characters of which marks are made."""
    for character in _CHARACTERS:  # faster than str.translate
        text = text.replace(character, "")
    return text


def hole(number: int) -> str:
    """Return the mark of the hole with this number."""
    return f"{HOLE}{number}{_END}"


def aside(text: str) -> str:
    """Return a pronunciation, which is left out if it stands in brackets."""
    return f"{_ASIDE}{' '.join(text.split())}{_ASIDE_END}"


def placed(text: str) -> str:
    """Move the holes with lines of their own into the sentences around them; remove those of boxes."""
    if HOLE not in text:
        return text
    return _BOX.sub("", _ENDED_BY.sub(r" \1\n", _GOES_ON.sub(r" \1 ", text)))


def whole_sentences(paragraph: str) -> tuple[str, list[int]]:
    """Return a paragraph without the sentences that have holes, and the number of the first hole of each of these.

    A hole costs no sentence before the capital letter with which a paragraph begins (a notice or box), directly after
    a full stop (a reference), and as an item of its own in brackets.
    """
    if _ASIDE in paragraph:
        paragraph = _without_asides(paragraph)
    if HOLE not in paragraph:
        return without_marks(paragraph), []
    paragraph = " ".join(paragraph.split())
    start = _AT_START.match(paragraph)
    if start and not start[1].islower():
        paragraph = paragraph[start.end() :]
    paragraph = _IN_BRACKETS.sub(lambda match: f"({_ITEM.sub(' ', match[1])})", paragraph)
    paragraph = _AFTER_STOP.sub(r"\1", paragraph)
    return _kept(paragraph)


def _without_asides(paragraph: str) -> str:
    """Remove pronunciations in brackets, with `pronounced` before them; show the others."""
    parts: list[str] = []
    depth = at = 0
    begun: int | None = None  # the part with which a pronunciation in brackets begins
    for bracket in _BRACKET.finditer(paragraph):
        parts.append(paragraph[at : bracket.start()])
        at = bracket.end()
        match bracket[0]:
            case "(" | ")":
                parts.append(bracket[0])
                depth = max(depth + (1 if bracket[0] == "(" else -1), 0) if begun is None else depth
            case _ if bracket[0] == _ASIDE:
                if depth and begun is None:
                    begun = len(parts)
            case _ if begun is not None:
                del parts[begun:]
                opening = parts.pop() if parts else ""
                label = _LABEL.search(opening[-_LONGEST_LABEL:])
                parts.append(opening[: len(opening) - len(label[0])] if label else opening)
                begun = None
    return "".join(parts) + paragraph[at:]


def _kept(paragraph: str) -> tuple[str, list[int]]:
    holes = [int(mark[1:-1]) for mark in _HOLE.findall(paragraph)]
    pieces = [without_marks(piece) for piece in _HOLE.split(paragraph)]
    filled = _NAME.join(pieces)
    parts = sentences(filled) if holes else [filled]
    if " ".join(parts) != filled:
        parts = [filled]
    # where each hole begins, and each sentence ends, in the filled text
    begins = list(accumulate((len(_NAME) + len(piece) for piece in pieces[1:-1]), initial=len(pieces[0])))
    ends = accumulate(len(part) + 1 for part in parts)
    sentence_parts: list[str] = []
    dropped: list[int] = []
    passed = 0  # holes
    for part, end in zip(parts, ends, strict=True):
        first_hole = passed
        while passed < len(holes) and begins[passed] < end:
            passed += 1
        if first_hole == passed:
            sentence_parts.append(part)
        elif len(_ANY_WORD.findall(part)) > (passed - first_hole) * len(_NAME):
            dropped.append(holes[first_hole])
    return " ".join(sentence_parts), dropped


# The quotes of wiki markup, paired as in MediaWiki (`Parser::doQuotes`). A run is what stands together in the source:
# templates, links, tags and entities part it, comments do not. So each run becomes a mark before anything else is
# replaced by its text.
_RUN = re.compile(r"<[a-z][a-z0-9]*\s[^<>]*>|'{2,}", re.IGNORECASE)  # those in the attributes of a tag are none
_QUOTE_MARK = re.compile(f"([{ITALIC}{BOLD}{BOLD_ITALIC}])")
_MARKS = {2: ITALIC, 3: BOLD, 4: "'" + BOLD}


def marked(text: str) -> str:
    """Return a text with a mark for each run of quotes; of more than five, the first are apostrophes."""
    if "''" in text:
        text = _RUN.sub(lambda run: run[0] if run[0][0] == "<" else _mark(len(run[0])), text)
    return text.replace(WALL, "")


def _mark(quotes: int) -> str:
    return _MARKS.get(quotes) or "'" * (quotes - 5) + BOLD_ITALIC


def paired(text: str) -> str:
    """Return a text with the apostrophes that were taken for marks: where a line has an odd number of both kinds."""
    return "\n".join(map(_repaired, text.split("\n"))) if BOLD in text else text


def _repaired(line: str) -> str:
    """Make an apostrophe and '' of the likeliest ''': best after a lone letter (l'''Orso''), worst after a blank."""
    doubles = line.count(BOLD_ITALIC)
    if (line.count(BOLD) + doubles) % 2 == 0 or (line.count(ITALIC) + doubles) % 2 == 0:
        return line
    pieces = _QUOTE_MARK.split(line)
    bolds = [number for number, piece in enumerate(pieces) if piece == BOLD]
    if bolds:
        pieces[min(bolds, key=lambda number: _unlikely(pieces[number - 1]))] = "'" + ITALIC
    return "".join(pieces)


def _unlikely(text: str) -> int:
    return 2 if text.endswith(" ") else 0 if text[-2:-1] == " " else 1


def unquoted(text: str) -> str:
    """Return a text without the marks of quotes."""
    return _QUOTE_MARK.sub("", text)
