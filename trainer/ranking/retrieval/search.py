"""Exact search: turn embeddings into rankings that do not depend on how the scores are split into blocks.

Rankings to mine negatives from must not depend on the last bits of the scores: these change with the rounding of the
weights, as on another number of ranks. With `salts`, one for each query, scores are rounded to 12 significant bits, and
ties are in an order of the query's own, by a hash of its salt and the document's position: documents that the model
does not tell apart are taken at random, others for each query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import meter

QUERY_BLOCK, CORPUS_BLOCK = 256, 8192  # scores held at once: 8 MiB in fp32
ON_DEVICE = 2048, 65536  # likewise on an accelerator: 512 MiB
PRODUCTS = 2**15  # numbers of documents that are copied at once to be scored one by one: 256 KiB in fp64
PADDING = np.uint64(2**64 - 1)  # padding: a key that sorts after all others
SINGLE_COST = 32  # scoring one document alone costs as much as scoring this many in a block
DROPPED = 12  # of the 24 significant bits of fp32, those that scores are rounded by where there are salts
MIX = 0x9E3779B1  # 2**32 / the golden ratio, odd: multiples of it modulo 2**32 are spread out, and all differ
SCORES = 2**27  # held at once where the scores of all documents are needed: 512 MiB in fp32


class Ranked(NamedTuple):
    """The documents found for a query, best first."""

    documents: np.ndarray  # int64 [n], positions in the pool
    scores: np.ndarray  # fp32 [n]


class Ranking(NamedTuple):
    """The best documents of each query, best first."""

    documents: np.ndarray  # int64 [Q, k], positions in the corpus
    scores: np.ndarray  # fp32 [Q, k]

    def each(self) -> list[Ranked]:
        """Return each query's ranking, as views."""
        return [Ranked(*row) for row in zip(self.documents, self.scores, strict=True)]


def search(
    queries: np.ndarray,
    corpus: np.ndarray,
    k: int,
    *,
    salts: np.ndarray | None = None,
    device: torch.device | None = None,
    query_block: int | None = None,
    corpus_block: int | None = None,
) -> Ranking:
    """Find the k documents of largest inner product with each query: exact, ties in corpus order.

    Scores are summed in fp64 and rounded to fp32: summed in fp32, two equal documents could differ in the last bit,
    because BLAS adds in another order at the edge of a block. But the error of fp32 is bounded (Higham, 2002, section
    3.1), so fp32 scores show which documents cannot be among the k best; only the few others are scored in fp64. Every
    block of the corpus is read once. The memory needed is one block of scores, and k keys for each query. On a `device`
    only the fp32 scores are computed and compared, so the ranking is the same there.

    Args:
        queries: fp32 [Q, H], Q >= 1.
        corpus: fp32 or fp16 [N, H], N >= 1; may be memory-mapped.
        k: all N are ranked where N < k.
        salts: uint32 [Q], see `salts_of`: compare rounded scores; the ranking has these.
        device: an accelerator for most of the work; by default numpy does it.
        query_block: queries scored at once; the result does not depend on it.
        corpus_block: documents scored at once; the result does not depend on it.
    """
    usual = (QUERY_BLOCK, CORPUS_BLOCK) if device is None else ON_DEVICE
    query_block, corpus_block = query_block or usual[0], corpus_block or usual[1]
    query_blocks = [slice(at, at + query_block) for at in range(0, len(queries), query_block)]
    keys = [np.empty((len(queries[block]), 0), np.uint64) for block in query_blocks]  # of the best so far
    with meter("search", "documents", len(corpus)) as report:
        for start in range(0, len(corpus), corpus_block):
            documents = corpus[start : start + corpus_block].astype(np.float32, copy=False)
            max_norm = float(_norms(documents).max())
            on_device = None if device is None else torch.tensor(documents, device=device)
            for i, block in enumerate(query_blocks):
                scores = _fp32_scores(queries[block], documents, on_device)
                block_keys = _candidate_keys(
                    scores, queries[block], documents, max_norm, keys[i], k, start, some(salts, block)
                )
                keys[i] = _smallest(np.concatenate([keys[i], block_keys], axis=1), k)
            report(start + len(documents), "")
    return _ranking(np.concatenate(keys), salts)


def salts_of(queries: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return a salt for each query, uint32 [Q], given the queries' numbers."""
    return np.asarray(queries, np.uint32) * np.uint32(0x85EBCA6B)


def some(salts: np.ndarray | None, queries: Any) -> np.ndarray | None:
    """Return the salts of some queries, given their places; None where there are no salts."""
    return None if salts is None else salts[queries]


def _fp32_scores(
    queries: np.ndarray, documents: np.ndarray, on_device: torch.Tensor | None
) -> np.ndarray | torch.Tensor:
    """Return the products [n, q] of documents fp32 [n, H], copied to a device or not, and queries fp32 [q, H]."""
    if on_device is None:
        scores: np.ndarray = documents @ queries.T  # the faster way round
        return scores
    return on_device @ torch.from_numpy(queries).to(on_device.device).T


def _kth_largest(scores: np.ndarray | torch.Tensor, k: int) -> np.ndarray:
    """Return the k-th largest number of each column."""
    if isinstance(scores, torch.Tensor):
        return scores.topk(k, dim=0).values[-1].cpu().numpy()
    return np.partition(scores.T, -k, axis=1)[:, -k]


def _not_below(scores: np.ndarray | torch.Tensor, limits: np.ndarray) -> np.ndarray:
    """Return where numbers are not below their column's limit, int64 in flattened order; NaN is not below."""
    if isinstance(scores, torch.Tensor):
        return (~(scores < torch.from_numpy(limits).to(scores.device))).flatten().nonzero()[:, 0].cpu().numpy()
    return np.flatnonzero(~(scores < limits))  # twenty times as fast as np.nonzero


def _candidate_keys(
    scores: np.ndarray | torch.Tensor,
    queries: np.ndarray,
    documents: np.ndarray,
    max_norm: float,
    best_keys: np.ndarray,
    k: int,
    start: int,
    salts: np.ndarray | None,
) -> np.ndarray:
    """Return keys of a block's documents that may be in the k best of each query, uint64 [q, n], padded with `PADDING`.

    `scores` are those of `_fp32_scores` for queries fp32 [q, H] and documents fp32 [n, H], of which the first is at
    position `start` and the largest norm is `max_norm`; `best_keys` are those of the best so far, [q, up to k].
    """
    width = queries.shape[1]
    # error of a sum of `width` products in any order, doubled for the errors of the norms and of scores that underflow
    error = 2 * width * (2.0**-24 * _norms(queries) * max_norm + 2.0**-140)
    if best_keys.shape[1] == k:
        thresholds = _scores_of(best_keys.max(axis=1)).astype(np.float64)
    elif len(documents) > k:
        thresholds = _kth_largest(scores, k) - error
    else:
        thresholds = np.full(len(queries), -np.inf)
    thresholds -= error + abs(thresholds) * 2.0 ** (-23 if salts is None else DROPPED - 22)  # exact scores are rounded
    limits = np.nextafter(thresholds.astype(np.float32), np.float32(-np.inf))
    columns, rows = np.divmod(_not_below(scores, limits), len(queries))
    if len(rows) * SINGLE_COST > len(documents) * len(queries):
        return _keys(inner_products(queries, documents.astype(np.float64)), start, salts)
    order = rows.argsort(kind="stable")
    rows, columns = rows[order], columns[order]
    counts = np.bincount(rows, minlength=len(queries))
    keys = np.full((len(queries), counts.max(initial=0)), PADDING)
    places = np.arange(len(rows)) - np.repeat(counts.cumsum() - counts, counts)
    products = _pair_products(queries, documents, columns, counts)
    keys[rows, places] = _pair_keys(products, columns + start, some(salts, rows))
    return keys


def _norms(vectors: np.ndarray) -> np.ndarray:
    """Return the norms fp64 [n] of vectors fp32 [n, H], computed with the errors of fp32."""
    return np.sqrt(np.einsum("nh,nh->n", vectors, vectors).astype(np.float64))


def _pair_products(queries: np.ndarray, documents: np.ndarray, columns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the inner products of each query with its own documents, fp32 [P]: summed in fp64, rounded.

    `columns` are the documents of query 0, then of query 1, ..., int64 [P]; `counts` how many each has, int64 [q].
    """
    products = np.empty(len(columns), np.float32)
    step = max(1, PRODUCTS // queries.shape[1])
    ends = counts.cumsum()
    for query, start, end in zip(queries.astype(np.float64), ends - counts, ends, strict=True):
        for at in range(start, end, step):
            part = slice(at, min(at + step, end))
            products[part] = documents[columns[part]].astype(np.float64) @ query
    return products


def row_blocks(shape: tuple[int, int], held: int = SCORES) -> Iterator[slice]:
    """Yield blocks of a matrix's rows, each of at most `held` scores or of one row."""
    rows, columns = shape
    block = min(QUERY_BLOCK, max(1, held // columns))
    for start in range(0, rows, block):
        yield slice(start, min(start + block, rows))


def inner_products(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Return the scores fp32 [q, n] of queries fp32 [q, H] and documents fp64 [n, H]: summed in fp64, rounded."""
    return (queries.astype(np.float64) @ documents.T).astype(np.float32)


def best(scores: np.ndarray, k: int, salts: np.ndarray | None = None) -> Ranking:
    """Return the k best columns of each row of fp32 [Q, N], ties from left to right; `salts` as in `search`."""
    return _ranking(_smallest(_keys(scores, 0, salts), k), salts)


class BestPositive:
    """The k best documents of each query among those scored so far; those that score 0 or less are not ranked.

    Attributes:
        least: fp32 [Q], what a document must score, before rounding, to be one of them.
    """

    def __init__(self, queries: int, k: int, salts: np.ndarray | None = None) -> None:
        """Start with no documents; `salts` as in `search`."""
        self.salts = salts
        self.least = np.full(queries, np.finfo(np.float32).smallest_subnormal, np.float32)
        self._keys = np.full((queries, k), PADDING)

    def add(self, query: int, documents: np.ndarray, scores: np.ndarray) -> None:
        """Add documents that were not added before, with scores fp32 [n] of `least` or more."""
        if not len(documents):
            return
        k = self._keys.shape[1]
        if len(documents) > k:  # a key takes longer than a comparison
            is_high = scores >= self._before_rounding(np.partition(scores, -k)[-k])
            documents, scores = documents[is_high], scores[is_high]
        new_keys = _pair_keys(scores, documents, some(self.salts, query))
        self._keys[query] = keys = np.partition(np.concatenate([self._keys[query], new_keys]), k - 1)[:k]
        if keys[-1] != PADDING:
            self.least[query] = self._before_rounding(_scores_of(keys[-1:])[0])

    def _before_rounding(self, score: np.float32) -> np.float32:
        """Return the least score that `salts` may round to a score that is not below this one."""
        return score if self.salts is None else np.float32(score * (1 - 2.0 ** (DROPPED - 22)))

    def ranked(self) -> list[Ranked]:
        """Return the ranking of each query."""
        counts = (self._keys != PADDING).sum(axis=1).tolist()
        ranking = _ranking(self._keys.copy(), self.salts).each()
        return [Ranked(documents[:n], scores[:n]) for (documents, scores), n in zip(ranking, counts, strict=True)]


def order_of(scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the order of a few documents, int64 [n], by their scores fp32 [n]: best first, ties by position."""
    return np.lexsort((positions, -scores))


def rescored(query: np.ndarray, vectors: Any, positions: np.ndarray, k: int) -> Ranked:
    """Return the k best of some vectors for a query fp32 [H], given their places int64 [n] in order.

    `vectors` is an array fp32 or fp16 [N, H], or reads like one. Scores are summed in fp64 and rounded, as in `search`.
    """
    scores = np.einsum("ph,h->p", vectors[positions].astype(np.float64), query.astype(np.float64)).astype(np.float32)
    order = order_of(require_numbers(scores), positions)[:k]
    return Ranked(positions[order], scores[order])


def packed(ranked: Sequence[Ranked], k: int) -> np.ndarray:
    """Write rankings as keys, uint64 [Q, k], padded with `PADDING`: arrays of one shape, for ranks to exchange."""
    keys = np.full((len(ranked), k), PADDING)
    for row, (documents, scores) in zip(keys, ranked, strict=True):
        row[: len(documents)] = _pair_keys(scores, documents)
    return keys


def merged(keys: np.ndarray, k: int) -> list[Ranked]:
    """Read the k best of each query from keys uint64 [Q, n] of distinct documents, ties in the order of documents."""
    keys = _smallest(keys, k)
    documents, scores = _ranking(keys)  # sorts the keys
    counts = (keys != PADDING).sum(axis=1)
    return [Ranked(documents[i, :n], scores[i, :n]) for i, n in enumerate(counts.tolist())]


def _keys(scores: np.ndarray, start: int, salts: np.ndarray | None) -> np.ndarray:
    """Return the key, uint64 [q, n], of each score fp32 [q, n] of the n documents from number `start` on."""
    return _pair_keys(scores, np.arange(start, start + scores.shape[1]), some(salts, (slice(None), None)))


def require_numbers(scores: np.ndarray) -> np.ndarray:
    """Return the scores; raise InputError where one is NaN or infinity. Minus infinity leaves a document out."""
    if not (scores < np.inf).all():
        raise InputError(
            "a score is not a number: the model's weights or the index are damaged; trainer.search --verify checks an "
            "index"
        )
    return scores


def _pair_keys(scores: np.ndarray, positions: np.ndarray, salts: np.ndarray | None = None) -> np.ndarray:
    """Pack each score fp32 and its document into one integer, uint64: smaller is better, and all of a query's differ.

    So the k smallest are the same however the documents are split into blocks. `salts` is of the scores' queries.
    """
    bits = (require_numbers(scores) + np.float32(0)).view(np.uint32)  # the addition makes -0.0 equal to 0.0
    if salts is not None:
        bits = (bits + np.uint32(1 << DROPPED >> 1)) >> np.uint32(DROPPED) << np.uint32(DROPPED)
        positions = positions.astype(np.uint32) * np.uint32(MIX) + salts
    return _descending(bits).astype(np.uint64) << np.uint64(32) | positions.astype(np.uint64)


def _smallest(keys: np.ndarray, k: int) -> np.ndarray:
    """Return the k smallest of each row, unsorted; all where there are no more than k."""
    if keys.shape[1] <= k:
        return keys
    return np.partition(keys, k - 1, axis=1)[:, :k].copy()  # a view would keep the whole block in memory


def _ranking(keys: np.ndarray, salts: np.ndarray | None = None) -> Ranking:
    keys.sort(axis=1)
    positions = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    if salts is not None:
        positions = (positions - salts[:, None]) * np.uint32(pow(MIX, -1, 2**32))
    return Ranking(positions.astype(np.int64), _scores_of(keys))


def _scores_of(keys: np.ndarray) -> np.ndarray:
    """Return the scores fp32 that are packed in keys."""
    return _descending((keys >> np.uint64(32)).astype(np.uint32)).view(np.float32)


def _descending(bits: np.ndarray) -> np.ndarray:
    """Map the bits of fp32 numbers to uint32 that fall as the numbers rise; applied twice, it is the identity."""
    return np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFFFFFF))
