"""BM25 (Robertson and Zaragoza, 2009), the baseline that every encoder is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_prep.common.progress import track
from trainer.retrieval.search import Ranked, best

K1, B = 1.2, 0.75  # Lucene's defaults
DESCRIPTION = f"BM25: Lucene variant, k1={K1}, b={B}, English stop words, no stemming"


class Bm25:
    """A system (see `System`) that scores documents by the words which they share with a query.

    Args:
        queries: their texts.
        documents: the texts of the pool.
    """

    def __init__(self, queries: Sequence[str], documents: Sequence[str]) -> None:
        import bm25s

        words = bm25s.tokenize(list(documents), stopwords="en", show_progress=False)
        self._index = bm25s.BM25(k1=K1, b=B, method="lucene") if words.vocab else None  # it cannot index no words
        if self._index:
            self._index.index(words, show_progress=False)
        self._queries = bm25s.tokenize(list(queries), stopwords="en", return_ids=False, show_progress=False)
        self.shape = len(queries), len(documents)

    def scores(self, rows: slice) -> np.ndarray:
        """The scores of all documents, fp32 [q, N], for some of the queries; 0 where no word is shared."""
        queries = self._queries[rows]
        scores = np.zeros((len(queries), self.shape[1]), np.float32)
        if self._index:
            for row, terms in zip(scores, queries, strict=True):
                row[:] = self._index.get_scores_from_ids(self._index.get_tokens_ids(terms))
        return scores

    def of(self, query: int, documents: np.ndarray) -> np.ndarray:
        """The scores of some documents, fp32 [n], for a query."""
        scores: np.ndarray = self.scores(slice(query, query + 1))[0, documents]
        return scores

    def rank(self, k: int) -> list[Ranked]:
        """At most k documents for each query, best first, equal scores in the order given.

        A document that shares no word with the query is not ranked.
        """
        ranked = []
        for query in track(range(self.shape[0]), "search", "queries"):
            ((documents, scores),) = best(self.scores(slice(query, query + 1)), k).each()
            ranked.append(Ranked(documents[scores > 0], scores[scores > 0]))
        return ranked
