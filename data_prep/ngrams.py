"""Word n-grams as 64-bit hashes, the same on every machine: what tells that two texts share a run of n words.

Brown et al. (2020, "Language Models are Few-Shot Learners", appendix C) leave out of the training text what shares
13 words in a row with a text of the evaluation. A text of fewer than n words has no n-gram and cannot be found.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np

from data_prep.clean import normalise
from data_prep.collection import PARTS, JsonLines
from data_prep.progress import track

LONGEST_WORD = 64  # characters; a longer run counts as several words, so that what is cached is bounded in bytes too
CACHED = 1 << 18  # words whose hashes a process keeps: 50 MB of usual ones, 120 MB of the longest
BATCH = 4096  # texts whose n-grams are sorted at once

_WORD = re.compile(rf"\w{{1,{LONGEST_WORD}}}")
_BASE = np.uint64(0x9E3779B97F4A7C13)  # odd, so that multiplying by it loses nothing; else arbitrary


def hashes(text: str, n: int) -> np.ndarray:
    """The n-grams of a text, uint64 [words - n + 1] in their order; [0] where it has fewer than n words."""
    return of_words(words(text), n)


def words(text: str) -> np.ndarray:
    r"""The hashes of the words of a text, uint64 [words]: its casefolded runs of `\w`, at most LONGEST_WORD long."""
    found = _WORD.findall(text.casefold())
    return np.fromiter(map(_hash, found), np.uint64, len(found))


def of_words(words: np.ndarray, n: int) -> np.ndarray:
    """The n-grams of hashed words, uint64 [max(0, words - n + 1)]; n = 0 makes one of any number of words equal.

    Each is the polynomial of its words' hashes modulo 2^64 (Karp and Rabin 1987), evaluated by Horner's rule.
    """
    count = max(0, len(words) - n + 1)
    result = np.zeros(count, np.uint64)
    for position in range(n):
        result = result * _BASE + words[position : position + count]
    return result


@lru_cache(maxsize=CACHED)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def of_collections(folders: Iterable[str | Path], n: int) -> np.ndarray:
    """All n-grams of the documents (title and text) and the queries of BEIR folders, uint64, sorted, each once.

    The texts are streamed; memory is some 24 bytes for each of their words, and what the ids of one file take.

    Raises:
        InputError: corpus.jsonl or queries.jsonl is missing, has no texts or a bad line (naming file and line).
    """
    texts = _texts(folders)
    runs = [np.empty(0, np.uint64)]
    while batch := list(islice(texts, BATCH)):
        runs.append(np.unique(np.concatenate([hashes(normalise(text), n) for text in batch])))
    return np.unique(np.concatenate(runs))


def _texts(folders: Iterable[str | Path]) -> Iterator[str]:
    for folder in folders:
        for part in PARTS:
            path = Path(folder) / f"{part}.jsonl"
            for _, text in track(JsonLines(path), f"n-grams of {path}", "texts"):
                yield text


def shares(found: np.ndarray, table: np.ndarray) -> bool:
    """Whether any of some n-grams (uint64 [any]) is in a table of them (uint64, sorted; may be memory-mapped)."""
    if not len(table):
        return False
    wanted = np.sort(found)  # each search begins where the one before ended
    nearest = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return bool((table[nearest] == wanted).any())
