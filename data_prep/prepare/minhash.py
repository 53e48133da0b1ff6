"""Near-duplicates by MinHash and locality-sensitive hashing, out of core; the order of the documents does not matter.

A document is the set of its word 5-grams, its shingles (Broder 1997, "On the resemblance and containment of
documents"; Lee et al. 2022, "Deduplicating training data makes language models better"). The chance that the
smallest of all shingles under a random permutation is the same for two documents is their Jaccard similarity s, so
that a band of r such minima is the same with chance s^r, and one of B bands with 1 - (1 - s^r)^B (Leskovec et al.,
"Mining of massive datasets", chapter 3).

The rule: a document is dropped if and only if it shares a band with a document of a smaller key. Keys are hashes of
content, so the result does not depend on the order of documents or on how documents and bands are divided among
machines: it is the union of what `surpassed` returns for the records of each range of bands. Among documents
that share bands, directly or through others, the one with the smallest key stays; in a chain where each is similar only
to the next, it may be the only one that stays. Documents with the same key have the same text and count as one.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.prepare import ngrams

SHINGLE = 5  # words
PERMUTATIONS = 128
SEED = 1
RECALL = 0.9  # the least share of pairs found whose similarity equals the threshold; above it, the share is larger

_BLOCK = 256  # shingles whose permutations, 256 KiB, stay in the cache of a core; twice as many are slower


@lru_cache
def layout(threshold: float) -> tuple[int, int]:
    """Return the number of bands B and of rows r in each: the most rows, for precision, that reach RECALL."""
    if not 0 < threshold <= 1:
        raise InputError(f"near-duplicates: a similarity of {threshold} is not above 0 and at most 1")
    enough = [r for r in range(1, PERMUTATIONS + 1) if 1 - (1 - threshold**r) ** (PERMUTATIONS // r) >= RECALL]
    rows = max(enough, default=1)
    return PERMUTATIONS // rows, rows


def bands(text: str, threshold: float) -> np.ndarray:
    """Return the bands of a text, uint64 [B], each hashed with its number; near-duplicates share one.

    A text of fewer than SHINGLE words has one shingle, of all its words; all texts without words are equal.
    """
    count, rows = layout(threshold)
    words = ngrams.words(text)
    shingles = ngrams.word_ngrams(words, min(SHINGLE, len(words)))
    minima = _no_shingles().copy()
    for start in range(0, len(shingles), _BLOCK):
        minima.update_batch(shingles[start : start + _BLOCK].tolist())
    table = minima.hashvalues[: count * rows].astype("<u8").reshape(count, rows)
    hashed = [blake2b(row.tobytes(), digest_size=8, salt=bytes([band])).digest() for band, row in enumerate(table)]
    return np.frombuffer(b"".join(hashed), "<u8").astype(np.uint64)


@lru_cache(maxsize=1)
def _no_shingles() -> Any:
    """Return the MinHash of an empty set, whose copies share its permutations."""
    require("dumps", "datasketch", feature="--near-duplicates")
    from datasketch import MinHash

    # 64 bits: with 32, a billion documents of one shingle would hold a hundred million accidental pairs
    return MinHash(PERMUTATIONS, SEED, hashfunc=int, scheme="affine64")


def surpassed(bands: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the keys of the documents to drop according to one range of bands: uint64, sorted, unique.

    `bands`, uint64 [n], are those of all documents in the range, in any order, `keys` their documents' keys. Memory is
    about 50 bytes a record beyond these two.
    """
    if not len(bands):
        return np.empty(0, np.uint64)
    order = np.argsort(bands)
    bands, keys = bands[order], keys[order]
    starts = np.flatnonzero(np.concatenate([[True], bands[1:] != bands[:-1]]))
    smallest = np.minimum.reduceat(keys, starts)
    return np.unique(keys[keys > np.repeat(smallest, np.diff(starts, append=len(bands)))])
