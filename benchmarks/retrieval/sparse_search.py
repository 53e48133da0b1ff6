"""Search among sparse texts, compared with scipy's sparse product and with bm25s."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common.calibration import cpu_seconds
from benchmarks.common.side_by_side import ratios, rounds, spread
from trainer.ranking.retrieval.sparse import BLOCK, Postings, search_postings, term_type

OURS, SCIPY, BM25S = "deepsiam", "scipy product", "bm25s"
DRAWS = 1 << 18  # chances that the terms share
FREQUENT = 50  # a term's probability is 1 / (its rank + this): few terms are in a fifth of the texts, most in few


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


def works(sizes: SparseSizes) -> tuple[dict[str, Callable[[], np.ndarray]], dict[str, int]]:
    """Return the rivals' work, the scores of the best texts, fp32 [queries, best], and the bytes of their texts.

    All of a query's weights are 1, because bm25s has no others; to the rest they make no difference in time.
    """
    import bm25s
    from scipy.sparse import csr_array

    queries, blocks = sparse_pool(sizes)

    def matrix(flat: np.ndarray, counts: np.ndarray) -> Any:
        shape, ends = (len(counts), sizes.vocabulary), np.append(0, counts.cumsum())
        return csr_array((np.ascontiguousarray(flat["weight"]), np.ascontiguousarray(flat["term"]), ends), shape=shape)

    query_matrix = matrix(np.concatenate(queries), np.array(list(map(len, queries))))
    by_term = matrix(*made_up(sizes, sizes.texts, sizes.terms, 0)).T.tocsr()
    bm25s_index = bm25s.BM25()
    of_terms = {"data": by_term.data, "indices": by_term.indices, "indptr": by_term.indptr, "num_docs": sizes.texts}
    bm25s_index.scores, bm25s_index.nonoccurrence_array = of_terms, None
    bm25s_index.unique_token_ids_set = set(range(sizes.vocabulary))
    asked = [query["term"].tolist() for query in queries]

    def ours() -> np.ndarray:
        return np.stack([_best(ranked.scores, sizes.best) for ranked in search_postings(queries, blocks, sizes.best)])

    def scipy() -> np.ndarray:
        scores = query_matrix @ by_term
        rows = np.split(scores.data, scores.indptr[1:-1])
        return np.stack([_best(np.partition(row, -min(sizes.best, len(row))), sizes.best) for row in rows])

    def bm25() -> np.ndarray:
        return np.asarray(bm25s_index.retrieve(asked, k=sizes.best, show_progress=False).scores)

    arrays = (array for _, block in blocks for array in vars(block).values())
    matrix_bytes = by_term.data.nbytes + by_term.indices.nbytes + by_term.indptr.nbytes
    held = {OURS: sum(array.nbytes for array in arrays), SCIPY: matrix_bytes, BM25S: matrix_bytes}
    return {OURS: ours, SCIPY: scipy, BM25S: bm25}, held


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the k largest scores, in order, or zeros where there are fewer; they are among the last k."""
    best = np.sort(scores[-k:])[::-1]
    return np.pad(best, (0, k - len(best)))


def measure(sizes: SparseSizes, seconds: float) -> dict[str, Any]:
    """Compare queries per CPU second within about `seconds`; check that all find the same scores."""
    end = time.monotonic() + seconds
    rivals, held = works(sizes)
    found = {name: work() for name, work in rivals.items()}
    for name in (SCIPY, BM25S):
        np.testing.assert_allclose(found[OURS], found[name], rtol=1e-5)
    spent = rounds({name: partial(cpu_seconds, work) for name, work in rivals.items()}, end)
    rates = {name: [sizes.queries / value for value in values] for name, values in spent.items()}
    return {
        "unit": "queries/s",
        "rounds": len(rates[OURS]),
        "rates": {name: spread(values) for name, values in rates.items()},
        "ratios": {f"{OURS} / {name}": ratios(rates[OURS], rates[name]) for name in (SCIPY, BM25S)},
        "memory_bytes": held,
    }
