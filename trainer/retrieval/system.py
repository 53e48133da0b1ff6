"""What is compared: a system scores every document of a pool for each of its queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainer.retrieval.search import CORPUS_BLOCK, inner_products, search


class System(Protocol):
    """Scores of the documents of a pool, in its order, for some queries; it holds the texts, encoded or indexed."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, the number of documents."""

    def scores(self, rows: slice) -> np.ndarray:
        """The scores of all documents, fp32 [q, N], for the queries numbered by `rows`: both its ends are given."""

    def rank(self, k: int) -> list[list[int]]:
        """At most k documents for each query: their positions, best first, equal scores in the pool's order."""


@dataclass(frozen=True)
class Embedded:
    """A system whose scores are the inner products of embeddings, those that `search` ranks by."""

    queries: np.ndarray  # fp32 [Q, H]
    documents: np.ndarray  # fp32 [N, H]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, the number of documents."""
        return len(self.queries), len(self.documents)

    def scores(self, rows: slice) -> np.ndarray:
        """The scores of all documents, fp32 [q, N], for some of the queries."""
        queries = self.queries[rows]
        scores = np.empty((len(queries), len(self.documents)), np.float32)
        for start in range(0, len(self.documents), CORPUS_BLOCK):
            block = slice(start, start + CORPUS_BLOCK)
            scores[:, block] = inner_products(queries, self.documents[block].astype(np.float64))
        return scores

    def rank(self, k: int) -> list[list[int]]:
        """At most k documents for each query, by exact search."""
        ranked: list[list[int]] = search(self.queries, self.documents, k).documents.tolist()
        return ranked
