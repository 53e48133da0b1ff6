"""Read a query from what a model wrote, and say why one is left out."""

from __future__ import annotations

import re
from collections.abc import Collection

REASONS = {
    "empty": "have no words",
    "refused": "refuse to answer",
    "overlong": "come to no end",
    "copied": "copy their document or an example",
    "duplicate": "were written before",
}
NGRAM, MOST_SHARED = 4, 0.8  # words in a row; the share of a query's that may stand in its document
_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_LABEL = re.compile(r"(\s*([-*•#>]+|\(?\d{1,2}[.)]))*\s*((question|query|search|keywords|claim|title)\s*:)?\s*", re.I)
_REFUSAL = re.compile(
    r"(i'?m |i am )?(very |so )?sorry\b|as an ai\b|i (can'?t|cannot|can not|won'?t|am unable|'?m unable|am not able)\b|"
    r"unfortunately, i\b",
    re.IGNORECASE,
)
_QUOTES = "\"'“”‘’«»`*_ "


def line_of(written: str) -> tuple[str, bool]:
    """Return the first line with words that announces nothing ("Here is a question:"), and whether it has ended."""
    lines = _THOUGHT.sub("", written).split("\n")
    for number, line in enumerate(lines):
        if re.search(r"\w", line) and not line.rstrip().endswith(":"):
            return line, number < len(lines) - 1
    return "", False


def query_of(line: str) -> str:
    """Return a line without labels, numbers, quotation marks and double spaces."""
    plain = "".join(c if c.isprintable() else " " for c in line.encode(errors="replace").decode())
    return " ".join(plain[_label_end(plain) :].split()).strip(_QUOTES)


def _label_end(line: str) -> int:
    found = _LABEL.match(line)
    return found.end() if found else 0


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case."""
    return tuple(re.findall(r"\w+", text.casefold()))


def reason_against(query: str, document: str, is_whole: bool, known: Collection[tuple[str, ...]]) -> str | None:
    """Return why a query is left out, a key of `REASONS`; None: it is not.

    Args:
        query: what `query_of` returned.
        document: what the model read.
        is_whole: whether the model came to an end.
        known: the words of the examples' queries.
    """
    words = words_of(query)
    if not words:
        return "empty"
    if _REFUSAL.match(query.replace("’", "'")):
        return "refused"
    if not is_whole:
        return "overlong"
    read = words_of(document)
    return "copied" if words in known or words == read or shared(words, read) > MOST_SHARED else None


def shared(query: tuple[str, ...], document: tuple[str, ...]) -> float:
    """Return the share of a query's n-grams that a document has; 0 for a query of fewer words than an n-gram."""
    of_document = {document[i : i + NGRAM] for i in range(len(document) - NGRAM + 1)}
    of_query = [query[i : i + NGRAM] for i in range(len(query) - NGRAM + 1)]
    return sum(ngram in of_document for ngram in of_query) / max(1, len(of_query))
