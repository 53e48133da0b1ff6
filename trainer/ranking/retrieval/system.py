"""Encoded or indexed texts: a system scores every document of a pool for each of its queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.progress import meter, track
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.retrieval.encode import TextVectors
from deepsiam.trainer.ranking.retrieval.search import (
    CORPUS_BLOCK,
    Ranked,
    best,
    inner_products,
    row_blocks,
    search,
    some,
)

List = tuple[int, Sequence[int]]  # the number of a query, the numbers of documents

# vectors that a model compares at once, padding included: their products take 128 MiB in fp32
QUERY_VECTORS, DOCUMENT_VECTORS = 2048, 16384


@dataclass(frozen=True)
class Texts:
    """The queries and documents of a collection that are encoded or indexed."""

    collection: Collection
    queries: list[int]  # positions in collection.queries
    pool: list[int]  # positions in collection.corpus; ties rank in this order

    @classmethod
    def of_lists(cls, collection: Collection, lists: Sequence[List]) -> Texts:
        """Return the distinct queries and documents of some lists, in order."""
        queries = np.unique([query for query, _ in lists])
        pool = np.unique(np.concatenate([documents for _, documents in lists]))
        return cls(collection, queries.tolist(), pool.tolist())

    def query_tokens(self) -> Iterator[np.ndarray]:
        """Yield the token ids of the queries."""
        return map(self.collection.queries.tokens, self.queries)

    def pool_tokens(self) -> Iterator[np.ndarray]:
        """Yield the token ids of the documents."""
        return map(self.collection.corpus.tokens, self.pool)


def in_pool_order(documents: np.ndarray) -> np.ndarray:
    """Put documents, int64 [N], into a random order, the same for every system.

    In the order of the corpus, where the relevant documents may come first, ties would favour them.
    """
    return np.sort(documents)[keyed_rng("pool order").permutation(len(documents))]


class ScoresAll(Protocol):
    """Scores of the documents of a pool, in its order, for some queries."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, the number of documents."""

    def scores(self, rows: slice) -> np.ndarray:
        """Return the scores of all documents, fp32 [q, N], for the queries in `rows`, a slice with both ends given."""


class System(ScoresAll, Protocol):
    """Texts, encoded or indexed."""

    def of(self, query: int, documents: np.ndarray) -> np.ndarray:
        """Return the scores of documents, fp32 [n], given their positions in the pool, for a query."""

    def rank(self, k: int, salts: np.ndarray | None = None) -> list[Ranked]:
        """Return at most k documents for each query, best first, ties in the pool's order; `salts` as in `search`."""


def scores_of_lists(
    of: Callable[[int, np.ndarray], np.ndarray], texts: Texts, lists: Sequence[List], work: str
) -> list[np.ndarray]:
    """Score each list, fp32 [n], by `System.of` of the lists' own texts."""
    queries, pool = np.array(texts.queries), np.array(texts.pool)
    return [
        of(int(queries.searchsorted(query)), pool.searchsorted(documents))
        for query, documents in track(lists, work, "lists")
    ]


@dataclass(frozen=True)
class Embedded(System):
    """A system whose scores are the inner products of embeddings, by which `search` ranks."""

    queries: np.ndarray  # fp32 [Q, H]
    documents: np.ndarray  # fp32 [N, H]
    device: torch.device | None = None  # as in `search`

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.queries), len(self.documents)

    def scores(self, rows: slice) -> np.ndarray:
        queries = self.queries[rows]
        scores = np.empty((len(queries), len(self.documents)), np.float32)
        for start in range(0, len(self.documents), CORPUS_BLOCK):
            block = slice(start, start + CORPUS_BLOCK)
            scores[:, block] = inner_products(queries, self.documents[block].astype(np.float64))
        return scores

    def of(self, query: int, documents: np.ndarray) -> np.ndarray:
        return inner_products(self.queries[query : query + 1], self.documents[documents].astype(np.float64))[0]

    def rank(self, k: int, salts: np.ndarray | None = None) -> list[Ranked]:
        return search(self.queries, self.documents, k, salts=salts, device=self.device).each()


@dataclass(frozen=True)
class Scored(System):
    """A system that scores by a model with several vectors per text: it scores every document, without search.

    Equal texts have equal scores, because each distinct text is scored once. The memory needed is one block of padded
    vectors, their products, and one block of scores.
    """

    score: Callable[[Vectors, Vectors], Tensor]  # a dual encoder's
    queries: TextVectors
    documents: TextVectors
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32  # of the computation of the scores

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.queries.rows), len(self.documents.rows)

    def scores(self, rows: slice, add: Callable[[int], None] = lambda _: None) -> np.ndarray:
        """The scores of all documents, fp32 [q, N], for some of the queries; `add` as in `table`."""
        table = self.table(self.queries.rows[rows], np.arange(len(self.documents.ends)), add)
        return table[:, self.documents.rows]

    def of(self, query: int, documents: np.ndarray) -> np.ndarray:
        if not len(documents):
            return np.empty(0, np.float32)
        distinct_rows, places = np.unique(self.documents.rows[documents], return_inverse=True)
        scores: np.ndarray = self.table(self.queries.rows[query : query + 1], distinct_rows)[0, places]
        return scores

    def rank(self, k: int, salts: np.ndarray | None = None) -> list[Ranked]:
        ranked: list[Ranked] = []
        progress = 0
        with meter("score", "pairs of texts", self.shape[0] * len(self.documents.ends)) as report:

            def add(scores: int) -> None:
                nonlocal progress
                progress += scores
                report(progress, "")

            for rows in row_blocks(self.shape):
                ranked += best(self.scores(rows, add), k, some(salts, rows)).each()
        return ranked

    def table(
        self, queries: np.ndarray, documents: np.ndarray, add: Callable[[int], None] = lambda _: None
    ) -> np.ndarray:
        """Return the scores fp32 [q, d] of distinct texts, by their numbers; pass `add` the size of each block."""
        table = np.empty((len(queries), len(documents)), np.float32)
        query_blocks = _blocks(self.queries.counts(queries), QUERY_VECTORS)
        query_batches = [(rows, self.queries.padded(queries[rows], self.device, self.dtype)) for rows in query_blocks]
        with torch.inference_mode():
            for columns in _blocks(self.documents.counts(documents), DOCUMENT_VECTORS):
                document_vectors = self.documents.padded(documents[columns], self.device, self.dtype)
                for rows, query_vectors in query_batches:
                    scores = self.score(query_vectors, document_vectors).float().cpu().numpy()
                    table[rows, columns] = scores
                    add(scores.size)
        return table


def _blocks(counts: np.ndarray, limit: int) -> Iterator[slice]:
    """Split texts with these numbers of vectors into blocks of at most `limit`, padding included, or of one text."""
    start = max_count = 0
    for i, count in enumerate(counts.tolist()):
        if i > start and max(max_count, count) * (i + 1 - start) > limit:
            yield slice(start, i)
            start, max_count = i, 0
        max_count = max(max_count, count)
    yield slice(start, len(counts))
