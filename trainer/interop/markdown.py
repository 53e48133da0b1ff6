"""Foreign texts in a README.md: recipes, prompts and names of others become neither Markdown nor HTML."""

import re

from deepsiam.data_prep.common.errors import printable


def as_text(text: object) -> str:
    """Return a text on one line, for a sentence or a cell of a table."""
    return re.sub(r"[\\`*\[\]<>|&]", r"\\\g<0>", printable(str(text)))


def as_code(text: object) -> str:
    """Return a text on one line, as code within a sentence."""
    line = printable(str(text))
    blank = " " if line.startswith("`") or line.endswith("`") else ""
    return blank.join((fence(line, 1), line, fence(line, 1)))


def fence(text: str, least: int = 3) -> str:
    """Return a fence of at least `least` backticks that a text does not contain, to put it between two of them."""
    return "`" * max(least, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
