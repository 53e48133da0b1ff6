"""The words and the characters that a WordPiece vocabulary is learnt from."""

import sys
from collections import Counter
from collections.abc import Mapping

LONGEST_WORD = 100  # characters; WordPiece makes [UNK] of a longer word, so its pieces are of no use
MOST_CHARACTERS = 1 << 23  # of different words: what English has in the sample, twice; bounds time and memory
FEWEST = 256  # characters; text in Latin letters needs no more
COVERAGE = 0.9995  # of the characters of all words


def learnable(words: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the words of at most LONGEST_WORD characters, the commonest MOST_CHARACTERS of these."""
    candidates = {word: count for word, count in words.items() if len(word) <= LONGEST_WORD}
    if sum(map(len, candidates)) <= MOST_CHARACTERS:
        return candidates
    choice: dict[str, int] = {}
    size = 0
    for word in sorted(candidates, key=lambda word: (-candidates[word], word)):
        size += len(word)
        if size > MOST_CHARACTERS:
            break
        choice[word] = candidates[word]
    return choice


def alphabet(words: Mapping[str, int], room: int) -> list[str]:
    """Return the commonest characters of the words, in code point order; words with another one become [UNK].

    They are the FEWEST commonest, or more until they make up COVERAGE of all, as Chinese needs. If more than FEWEST do
    not fit in `room`, the number of pieces, the rarest are left out, and a line on stderr says so: a character is a
    piece, and another where it continues a word.
    """
    counts: Counter[str] = Counter()
    continuing: set[str] = set()
    for word, count in words.items():
        for character in word:
            counts[character] += count
        continuing.update(word[1:])
    commonest = sorted(counts, key=lambda character: (-counts[character], character))
    chars = commonest[:FEWEST]
    total, covered = counts.total(), sum(counts[character] for character in chars)
    pieces = len(chars) + len(continuing.intersection(chars))
    fitting, share = len(chars), covered / max(total, 1)
    for character in commonest[FEWEST:]:
        if covered >= COVERAGE * total:
            break
        chars.append(character)
        covered += counts[character]
        pieces += 1 + (character in continuing)
        if pieces <= room:
            fitting, share = len(chars), covered / total
    if fitting < len(chars):
        print(
            f"warning: a vocabulary with room for {room:,} pieces lacks {len(chars) - fitting:,} of the {len(chars):,} "
            f"characters that this text needs, {100 * (1 - share):.2f} % of it, whose words become [UNK]: raise "
            f"--vocab-size above {pieces:,}, or choose --tokenizer-kind bpe",
            file=sys.stderr,
        )
    return sorted(chars[:fitting])
