"""Made-up sparse texts, whose terms are as uneven as those of language."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepsiam.trainer.ranking.retrieval.sparse import BLOCK, Postings, term_type

DRAWS = 1 << 18  # chances that the terms share
FREQUENT = 50  # a term's probability is as 1 / (its rank + this): some terms are in half of the texts, most in few


@dataclass(frozen=True)
class SparseSizes:
    """How many texts are searched, how many terms they have, and for what."""

    texts: int
    terms: int  # of a text, at most: drawn twice, a term counts once
    vocabulary: int
    queries: int
    query_terms: int
    best: int


def made_up(sizes: SparseSizes, texts: int, terms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make up texts: their terms, of `term_type`, with weights that fp16 holds, and how many terms each has."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / (np.arange(sizes.vocabulary) + FREQUENT))
    drawn = np.searchsorted(shares, np.arange(DRAWS) / DRAWS * shares[-1])[rng.integers(DRAWS, size=(texts, terms))]
    drawn = np.sort(drawn.astype(np.int32), axis=1)
    first = np.diff(drawn, axis=1, prepend=-1) > 0
    flat = np.empty(first.sum(), term_type())
    flat["term"], flat["weight"] = drawn[first], rng.integers(1, 256, len(flat)) / 64
    return flat, first.sum(axis=1)


def sparse_pool(sizes: SparseSizes) -> tuple[list[np.ndarray], list[tuple[int, Postings]]]:
    """Return queries, whose weights are 1, and texts as an index stores them, in blocks."""
    of_queries, counts = made_up(sizes, sizes.queries, sizes.query_terms, 1)
    of_queries["weight"] = 1
    flat, of_each = made_up(sizes, sizes.texts, sizes.terms, 0)
    ends = np.append(0, of_each.cumsum())
    blocks = []
    for first in range(0, sizes.texts, BLOCK):
        of_block = flat[ends[first] : ends[min(first + BLOCK, sizes.texts)]].astype(term_type("float16"))
        blocks.append((first, Postings.of(of_block, of_each[first : first + BLOCK])))
    return np.split(of_queries, counts.cumsum()[:-1]), blocks
