"""Near-duplicates by MinHash and locality-sensitive hashing, out of core and whatever the order of the documents.

A document is the set of its word 5-grams, its shingles (Broder 1997, "On the resemblance and containment of
documents"; Lee et al. 2022, "Deduplicating training data makes language models better"). The chance that the
smallest of all shingles under a random permutation is the same for two documents is their Jaccard similarity s, so
that a band of r such minima is the same with chance s^r, and one of B bands with 1 - (1 - s^r)^B (Leskovec et al.,
"Mining of massive datasets", chapter 3).

The rule: a document is dropped if and only if one of its bands is also that of a document with a smaller key. Keys
are hashes of content, so nothing depends on the order of documents, on how they are dealt to machines, or on how the
bands are: whatever `surpassed` says of the records (RECORD) of each range of bands, the union is the answer. Of
documents that share bands, be it by way of others, the one with the smallest key stays; a chain of them, in which
each is only like the next, may go down to that one. Documents of the same key are the same and are not told apart.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from data_prep import ngrams
from data_prep.errors import InputError

SHINGLE = 5  # words
PERMUTATIONS = 128
SEED = 1
RECALL = 0.9  # of the pairs that are as similar as the threshold, at least; of more similar ones more are found
RECORD = np.dtype([("band", "<u8"), ("key", "<u8")])  # of a document there are B, `bands` beside its key

_BLOCK = 256  # shingles whose permutations, 256 KiB, stay in the cache of a core; twice as many are slower


@lru_cache
def layout(threshold: float) -> tuple[int, int]:
    """The number of bands B, and of rows r in each: the most rows, for precision, with which RECALL is met.

    Raises:
        InputError: the threshold is not above 0 and at most 1.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"near-duplicates: a similarity of {threshold} is not above 0 and at most 1")
    enough = [r for r in range(1, PERMUTATIONS + 1) if 1 - (1 - threshold**r) ** (PERMUTATIONS // r) >= RECALL]
    rows = max(enough, default=1)
    return PERMUTATIONS // rows, rows


def bands(text: str, threshold: float) -> np.ndarray:
    """The bands of a text, uint64 [B], each hashed with its number; two texts share one if they are near-duplicates.

    A text of fewer than SHINGLE words has one shingle, of all its words; texts without words are all alike.

    Raises:
        InputError: datasketch is not installed, or the threshold is not above 0 and at most 1.
    """
    count, rows = layout(threshold)
    words = ngrams.words(text)
    shingles = ngrams.of_words(words, min(SHINGLE, len(words)))
    minima = _no_shingles().copy()
    for start in range(0, len(shingles), _BLOCK):
        minima.update_batch(shingles[start : start + _BLOCK].tolist())
    table = minima.hashvalues[: count * rows].astype("<u8").reshape(count, rows)
    hashed = [blake2b(row.tobytes(), digest_size=8, salt=bytes([band])).digest() for band, row in enumerate(table)]
    return np.frombuffer(b"".join(hashed), "<u8").astype(np.uint64)


@lru_cache(maxsize=1)
def _no_shingles() -> Any:
    """The MinHash of nothing, whose copies share its permutations."""
    try:
        from datasketch import MinHash
    except ImportError:
        raise InputError("near-duplicates need datasketch; run: pip install 'deepsiam[dumps]'") from None
    # 64 bits: with 32, a billion documents of one shingle would hold a hundred million accidental pairs
    return MinHash(PERMUTATIONS, SEED, hashfunc=int, scheme="affine64")


def surpassed(bands: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The keys of the documents to drop, as all records of some range of bands show: uint64, sorted, each once.

    Args:
        bands: uint64 [n], of all documents all that are in the range, in any order.
        keys: uint64 [n], of the document of each; memory is some 50 bytes a record beyond these two.
    """
    if not len(bands):
        return np.empty(0, np.uint64)
    order = np.argsort(bands)
    bands, keys = bands[order], keys[order]
    starts = np.flatnonzero(np.concatenate([[True], bands[1:] != bands[:-1]]))
    smallest = np.minimum.reduceat(keys, starts)
    return np.unique(keys[keys > np.repeat(smallest, np.diff(starts, append=len(bands)))])
