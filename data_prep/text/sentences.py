"""Split paragraphs into sentences."""

import re

import blingfire

_NO_SENTENCE_END = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|etc|cf|vs|resp|approx|Eqs?|Figs?|Refs?|Secs?|No|pp?)\.$")


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph of one line with blingfire, and join what it splits after `e.g.` and the like."""
    result: list[list[str]] = []  # the pieces of each sentence: appending to a string would take quadratic time
    for piece in blingfire.text_to_sentences(paragraph).split("\n"):
        if result and _NO_SENTENCE_END.search(result[-1][-1]):
            result[-1].append(piece)
        elif piece.strip():
            result.append([piece.strip()])
    return [" ".join(pieces) for pieces in result]
