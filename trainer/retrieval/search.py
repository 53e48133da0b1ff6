"""Exact search: embeddings to rankings that do not depend on how the scores are cut into blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from data_prep.common.progress import meter

QUERY_BLOCK, CORPUS_BLOCK = 256, 32768  # scores held at once: 64 MiB in fp64
SCORES = 2**27  # held at once where those of all documents are needed: 512 MiB in fp32


class Ranking(NamedTuple):
    """The best documents of each query, best first."""

    documents: np.ndarray  # int64 [Q, k], positions in the corpus
    scores: np.ndarray  # fp32 [Q, k]


def search(
    queries: np.ndarray,
    corpus: np.ndarray,
    k: int,
    *,
    query_block: int = QUERY_BLOCK,
    corpus_block: int = CORPUS_BLOCK,
) -> Ranking:
    """Find the k documents of largest inner product with each query: exact, equal scores in corpus order.

    Products are summed in fp64 and rounded to fp32. Summed in fp32, two equal documents could differ in the last bit,
    because BLAS adds in another order at the edge of a block. Every block of the corpus is read and cast once. Memory
    is that of one block of scores and of k keys a query.

    Args:
        queries: fp32 [Q, H], Q >= 1.
        corpus: fp32 [N, H], N >= 1; may be memory-mapped.
        k: all N are ranked where N < k.
        query_block: queries scored at once; the result does not depend on it.
        corpus_block: documents scored at once; the result does not depend on it.
    """
    query_blocks = [queries[at : at + query_block] for at in range(0, len(queries), query_block)]
    kept = [np.empty((len(block), 0), np.uint64) for block in query_blocks]
    with meter("search", "documents", len(corpus)) as report:
        for start in range(0, len(corpus), corpus_block):
            documents = corpus[start : start + corpus_block].astype(np.float64)
            for i, block in enumerate(query_blocks):
                scores = inner_products(block, documents)
                kept[i] = _smallest(np.concatenate([kept[i], _keys(scores, start)], axis=1), k)
            report(start + len(documents), "")
    return _ranking(np.concatenate(kept))


def row_blocks(shape: tuple[int, int], held: int = SCORES) -> Iterator[slice]:
    """Yield blocks of a matrix's rows, of at most `held` scores, or of one row."""
    rows, columns = shape
    block = min(QUERY_BLOCK, max(1, held // columns))
    for start in range(0, rows, block):
        yield slice(start, min(start + block, rows))


def inner_products(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """The scores of a block, fp32 [q, n], of queries fp32 [q, H] and documents fp64 [n, H]: summed in fp64, rounded."""
    return (queries.astype(np.float64) @ documents.T).astype(np.float32)


def best(scores: np.ndarray, k: int) -> Ranking:
    """The k best columns of each row of fp32 [Q, N], equal scores from left to right."""
    return _ranking(_smallest(_keys(scores, 0), k))


def order_of(scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The order of a few documents, int64 [n], by their scores fp32 [n]: best first, equal ones by position."""
    return np.lexsort((positions, -scores))


def _keys(scores: np.ndarray, start: int) -> np.ndarray:
    """One integer for each score and its column, uint64: smaller is better, and all of a row's differ.

    So the smallest k are the same however the columns, counted from `start`, are cut into blocks.
    """
    if np.isnan(scores).any():
        raise ValueError("a score is NaN")
    columns = np.arange(start, start + scores.shape[1], dtype=np.uint64)
    bits = (scores + np.float32(0)).view(np.uint32)  # the addition makes -0.0 equal to 0.0
    return _descending(bits).astype(np.uint64) << np.uint64(32) | columns


def _smallest(keys: np.ndarray, k: int) -> np.ndarray:
    """The k smallest of each row, unsorted; all where there are no more than k."""
    if keys.shape[1] <= k:
        return keys
    return np.partition(keys, k - 1, axis=1)[:, :k].copy()  # a view would keep the whole block in memory


def _ranking(keys: np.ndarray) -> Ranking:
    keys.sort(axis=1)
    bits = _descending((keys >> np.uint64(32)).astype(np.uint32))
    return Ranking((keys & np.uint64(0xFFFFFFFF)).astype(np.int64), bits.view(np.float32))


def _descending(bits: np.ndarray) -> np.ndarray:
    """Map the bits of fp32 numbers to uint32 that fall as the numbers rise; applied twice, it is the identity."""
    return np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFFFFFF))
