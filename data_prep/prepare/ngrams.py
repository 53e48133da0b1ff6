"""Hash word n-grams to 64 bits, the same on every machine, to find texts that share n words in a row.

Brown et al. (2020, "Language Models are Few-Shot Learners", appendix C) drop training text that shares 13 words in a
row with a text of the evaluation. A text of fewer than n words has no n-gram and cannot be found.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import texts_of
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.prepare.spool import key_of
from deepsiam.data_prep.text.characters import visible
from deepsiam.data_prep.text.normalize import normalise

LONGEST_WORD = 64  # characters; a longer run counts as several words, which bounds the bytes of the cache
CACHED = 1 << 18  # words whose hashes a process keeps: 50 MB of usual ones, 120 MB of the longest
_hash = lru_cache(maxsize=CACHED)(key_of)
BATCH = 4096  # texts whose n-grams are sorted at once

_WORD = re.compile(rf"\w{{1,{LONGEST_WORD}}}")
_BASE = np.uint64(0x9E3779B97F4A7C13)  # odd, so that multiplying by it loses nothing; else arbitrary


def hashes(text: str, n: int) -> np.ndarray:
    """Return the n-grams of a text in order, uint64 [words - n + 1], or [0] where it has fewer than n words."""
    return word_ngrams(words(text), n)


def words(text: str) -> np.ndarray:
    r"""Return the hashes of the words of a text, uint64 [words]: casefolded runs of `\w`, at most LONGEST_WORD each."""
    runs = _WORD.findall(visible(text).casefold())
    return np.fromiter(map(_hash, runs), np.uint64, len(runs))


def word_ngrams(words: np.ndarray, n: int) -> np.ndarray:
    """Return the n-grams of hashed words, uint64 [max(0, words - n + 1)]; with n = 0 all are equal.

    Each is the polynomial of its words' hashes modulo 2^64 (Karp and Rabin 1987), evaluated by Horner's rule.
    """
    count = max(0, len(words) - n + 1)
    result = np.zeros(count, np.uint64)
    for position in range(n):
        result = result * _BASE + words[position : position + count]
    return result


def collection_ngrams(folders: Iterable[str | Path], n: int) -> np.ndarray:
    """Return all n-grams of the texts of collections or BEIR folders: uint64, sorted, unique.

    The texts are streamed; memory is about 24 bytes for each of their words.
    """
    texts = (text for folder in map(Path, folders) for text in track(texts_of(folder), f"n-grams of {folder}", "texts"))
    runs = [np.empty(0, np.uint64)]
    while batch := list(islice(texts, BATCH)):
        runs.append(np.unique(np.concatenate([hashes(normalise(text), n) for text in batch])))
    return np.unique(np.concatenate(runs))


def shares(grams: np.ndarray, table: np.ndarray) -> bool:
    """Return whether any of the n-grams (uint64 [any]) is in a table (uint64, sorted; may be memory-mapped)."""
    if not len(table):
        return False
    ordered = np.sort(grams)  # sorted, so that each search begins where the previous one ended
    places = np.minimum(np.searchsorted(table, ordered), len(table) - 1)
    return bool((table[places] == ordered).any())
