"""The quotes of wiki markup, ''italic'' and '''bold''', paired as in MediaWiki (`Parser::doQuotes`).

A run of quotes is what stands together in the source: templates, links, tags and entities part it, comments do not. So
each run becomes a mark before anything else is replaced by its text.
"""

import re

from deepsiam.data_prep.sources.wikipedia.marks import BOLD, BOTH, ITALIC, WALL

_RUN = re.compile(r"<[a-z][a-z0-9]*\s[^<>]*>|'{2,}", re.IGNORECASE)  # those in the attributes of a tag are none
_MARK = re.compile(f"([{ITALIC}{BOLD}{BOTH}])")
_MARKS = {2: ITALIC, 3: BOLD, 4: "'" + BOLD}


def marked(text: str) -> str:
    """Return a text with a mark for each run of quotes; of more than five, the first are apostrophes."""
    if "''" in text:
        text = _RUN.sub(lambda run: run[0] if run[0][0] == "<" else _mark(len(run[0])), text)
    return text.replace(WALL, "")


def _mark(quotes: int) -> str:
    return _MARKS.get(quotes) or "'" * (quotes - 5) + BOTH


def paired(text: str) -> str:
    """Return a text with the apostrophes that were taken for marks: where a line has an odd number of both kinds."""
    if BOLD not in text:
        return text
    return "\n".join(map(_repaired, text.split("\n")))


def _repaired(line: str) -> str:
    """Make an apostrophe and '' of the likeliest ''': best after a lone letter (l'''Orso''), worst after a blank."""
    doubles = line.count(BOTH)
    if (line.count(BOLD) + doubles) % 2 == 0 or (line.count(ITALIC) + doubles) % 2 == 0:
        return line
    pieces = _MARK.split(line)
    bolds = [number for number, piece in enumerate(pieces) if piece == BOLD]
    if bolds:
        pieces[min(bolds, key=lambda number: _unlikely(pieces[number - 1]))] = "'" + ITALIC
    return "".join(pieces)


def _unlikely(before: str) -> int:
    return 2 if before.endswith(" ") else 0 if before[-2:-1] == " " else 1


def unquoted(text: str) -> str:
    """Return a text without the marks of quotes."""
    return _MARK.sub("", text)
