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
from benchmarks.retrieval.search import memory_of
from trainer.ranking.retrieval.sparse import BLOCK, Postings, search_postings, term_type

OURS, SCIPY, BM25S = "deepsiam", "scipy product", "bm25s"
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
    """Make up the terms of texts, of `term_type`, with weights that fp16 holds; return also each text's number."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / (np.arange(sizes.vocabulary) + FREQUENT))
    drawn = np.searchsorted(shares, rng.random((texts, terms)) * shares[-1])
    pairs = np.unique(drawn + sizes.vocabulary * np.arange(texts)[:, None])
    flat = np.empty(len(pairs), term_type())
    numbers, flat["term"] = np.divmod(pairs, sizes.vocabulary)
    flat["weight"] = rng.integers(1, 256, len(pairs)) / 64
    return flat, numbers


def works(sizes: SparseSizes) -> dict[str, Callable[[], np.ndarray]]:
    """Return the rivals' work: the scores of the best texts, fp32 [queries, best]; all of a query's weights are 1.

    bm25s cannot weigh the terms of a query; to the others the weights make no difference in time.
    """
    import bm25s
    from scipy.sparse import csr_array

    of_texts, texts = made_up(sizes, sizes.texts, sizes.terms, 0)
    of_queries, numbers = made_up(sizes, sizes.queries, sizes.query_terms, 1)
    of_queries["weight"] = 1
    queries = np.split(of_queries, np.bincount(numbers, minlength=sizes.queries).cumsum()[:-1])
    blocks = [(first, _block(of_texts, texts, slice(first, first + BLOCK))) for first in range(0, sizes.texts, BLOCK)]

    def matrix(flat: np.ndarray, rows: np.ndarray, count: int) -> Any:
        return csr_array((flat["weight"], (rows, flat["term"])), shape=(count, sizes.vocabulary), dtype=np.float32)

    query_matrix, by_term = matrix(of_queries, numbers, sizes.queries), matrix(of_texts, texts, sizes.texts).T.tocsr()
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

    return {OURS: ours, SCIPY: scipy, BM25S: bm25}


def _block(flat: np.ndarray, numbers: np.ndarray, texts: slice) -> Postings:
    """Return a block of texts as an index stores it."""
    first, last = np.searchsorted(numbers, [texts.start, texts.stop])
    counts = np.bincount(numbers[first:last] - texts.start)
    return Postings.of(flat[first:last].astype(term_type("float16")), counts)


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the k largest scores, in order, or zeros where there are fewer; they are among the last k."""
    best = np.sort(scores[-k:])[::-1]
    return np.pad(best, (0, k - len(best)))


def measure(sizes: SparseSizes, seconds: float) -> dict[str, Any]:
    """Compare queries per CPU second and memory within about `seconds`; check that all find the same scores."""
    end = time.monotonic() + seconds
    memory = {name: memory_of(sizes, name, works) for name in (OURS, SCIPY, BM25S)}
    rivals = works(sizes)
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
        "memory_bytes": memory,
    }
