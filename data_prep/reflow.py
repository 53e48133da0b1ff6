"""The paragraphs of a plain text, each on one line again, however its lines were broken."""

import re

from data_prep.clean import legible, normalise

WRAPPED = 120  # columns within which hard-wrapped lines stay; a paragraph on one line does not
LINES_OF_A_BLOCK = 15  # on average, above which blank lines mark something else than paragraphs

_END = re.compile(r"(?:[.!?:…—]|--| -)[\"'”’»)\]_*]*$")
_HYPHEN = re.compile(r"\S-$")


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text in normal form, none empty, with single blanks between words.

    Lines are hard-wrapped where nearly all are short; else each is a paragraph. Wrapped lines make a paragraph up
    to the next blank line, and where there are hardly any of those, up to a line on which the first word of the
    next would have had room.
    """
    blocks: list[list[str]] = [[]]
    for line in legible(text).split("\n"):
        words = " ".join(line.split())
        if words:
            blocks[-1].append(words)
        elif blocks[-1]:
            blocks.append([])
    blocks = [block for block in blocks if block]
    lengths = sorted(len(line) for block in blocks for line in block)
    if not lengths:
        return []
    if lengths[len(lengths) * 95 // 100] > WRAPPED:
        return [line for block in blocks for line in block]
    if len(lengths) > LINES_OF_A_BLOCK * len(blocks):
        width = lengths[len(lengths) * 9 // 10]
        blocks = [part for block in blocks for part in _at_short_lines(block, width)]
    return [_join(block) for block in blocks]


def one_line(text: str) -> str:
    """A text in normal form with nothing but single blanks between its words."""
    return " ".join(normalise(text).split())


def _at_short_lines(lines: list[str], width: int) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        parts[-1].append(line)
        room = len(line) + 1 + len(following.partition(" ")[0]) <= width
        # what is cut in the middle of a sentence is no paragraph, unless it is far too short for the margin
        if room and (_END.search(line) or len(line) < width / 2):
            parts.append([])
    return [part for part in parts if part]


def _join(lines: list[str]) -> str:
    """A word that was broken at a hyphen of its own keeps that; a dash stands as close as it stood."""
    joined = [line if _HYPHEN.search(line) else line + " " for line in lines]
    return "".join(joined).strip()
