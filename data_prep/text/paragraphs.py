"""The paragraphs of a plain text, each on one line, however its lines are broken."""

import re

from deepsiam.data_prep.text.normalize import legible

WRAPPED = 120  # columns: hard-wrapped lines are not longer, most paragraphs on one line are
LINES_OF_A_BLOCK = 15  # on average; in longer blocks, blank lines separate something larger than paragraphs
SENTENCES = 0.9  # of the lines end like sentences: each is one. In hard-wrapped prose, a fifth do
FEWEST_SENTENCES = 10  # lines; of fewer, all may end like sentences by chance

_END = re.compile(r"(?:[.!?:…—]|--| -)[\"'”’»)\]_*]*$")
_HYPHEN = re.compile(r"\S-$")


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text in `legible` form, with single blanks between words; none is empty.

    Where nearly all lines are short, they are hard-wrapped; else, or where nearly all lines end like sentences, each
    line is a paragraph. A paragraph of wrapped lines
    ends at a blank line or, in a text with hardly any blank lines, at a line with enough room for the first word of the
    next line.
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
    ended = sum(bool(_END.search(line)) for block in blocks for line in block)
    a_sentence_a_line = len(lengths) >= FEWEST_SENTENCES and ended >= len(lengths) * SENTENCES
    if lengths[len(lengths) * 95 // 100] > WRAPPED or a_sentence_a_line:
        return [line for block in blocks for line in block]
    if len(lengths) > LINES_OF_A_BLOCK * len(blocks):
        width = lengths[len(lengths) * 9 // 10]
        blocks = [part for block in blocks for part in _at_short_lines(block, width)]
    # joined by blanks, but not after a hyphen or dash that follows a word: `foot-` and `marks`: `foot-marks`
    return ["".join(line if _HYPHEN.search(line) else line + " " for line in block).strip() for block in blocks]


def _at_short_lines(lines: list[str], width: int) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        parts[-1].append(line)
        room = len(line) + 1 + len(following.partition(" ")[0]) <= width
        # a paragraph ends at the end of a sentence, or at a line that is far too short for the margin
        if room and (_END.search(line) or len(line) < width / 2):
            parts.append([])
    return [part for part in parts if part]
