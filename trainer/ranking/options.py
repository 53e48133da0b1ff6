"""The options that a ranker has in a system, as in `RUN(dimensions=128)`: their names, and what each may be."""

from __future__ import annotations

import re
from collections.abc import Mapping

NUMBER, WORD, URL, TEXT = "[1-9][0-9]{0,8}", r"\S+", r"http://\S+", "(?s:.*)"
EXAMPLE = "http://127.0.0.1:8000/v1"
SAID = {NUMBER: "a number", WORD: "a name", URL: EXAMPLE, TEXT: "a text"}


def check_options(options: Mapping[str, str], known: Mapping[str, str], of: str) -> None:
    """Raise ValueError for an option that a ranker lacks, or a value that it cannot have.

    Args:
        options: names and values.
        known: the names, and what each may be: words or `NUMBER`, `WORD`, `URL`, `TEXT`, with | between them.
        of: what has the options.
    """
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"'{name}' is not an option of {of}: {', '.join(known)}")
        if not re.fullmatch(known[name], value):
            possible = ", ".join(SAID.get(one, one) for one in known[name].split("|"))
            raise ValueError(f"'{value}': {name} is {possible}")
