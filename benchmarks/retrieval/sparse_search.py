"""Search among sparse texts, compared with scipy's sparse product and with bm25s."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common.made_up_sparse import SparseSizes, made_up, sparse_pool
from benchmarks.retrieval.search import OURS, speeds
from deepsiam.trainer.ranking.retrieval.sparse import search_postings

SCIPY, BM25S = "scipy product", "bm25s"


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
    return {**speeds(rivals, sizes.queries, end), "memory_bytes": held}
