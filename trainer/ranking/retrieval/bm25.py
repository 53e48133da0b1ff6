"""BM25 (Robertson and Zaragoza, 2009), the baseline that every encoder is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_prep.common.progress import track
from trainer.ranking.retrieval.search import Ranked, best, some

NAME = "bm25"
K1, B = 1.2, 0.75  # Lucene's defaults
DESCRIPTION = f"BM25: Lucene variant, k1={K1}, b={B}, English stop words, no stemming"


@dataclass(frozen=True)
class Bm25:
    """A system (see `System`) that scores documents by the words that they share with a query."""

    queries: Sequence[str]
    words: Any  # the documents', from `index_words`
    documents: int  # how many

    @classmethod
    def of_texts(cls, queries: Sequence[str], documents: Sequence[str]) -> Bm25:
        """Index the texts of a pool."""
        return cls(queries, index_words(documents), len(documents))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, the number of documents."""
        return len(self.queries), self.documents

    def scores(self, rows: slice) -> np.ndarray:
        """Return the scores of all documents, fp32 [q, N], for some of the queries; 0 where no word is shared."""
        from trainer.ranking.retrieval.bm25s_without_jax import bm25s

        queries = self.queries[rows]
        scores = np.zeros((len(queries), self.documents), np.float32)
        if self.words:
            split = bm25s.tokenize(list(queries), stopwords="en", return_ids=False, show_progress=False)
            for row, terms in zip(scores, split, strict=True):
                row[:] = self.words.get_scores_from_ids(self.words.get_tokens_ids(terms))
        return scores

    def of(self, query: int, documents: np.ndarray) -> np.ndarray:
        """Return the scores of some documents, fp32 [n], for a query."""
        scores: np.ndarray = self.scores(slice(query, query + 1))[0, documents]
        return scores

    def rank(self, k: int, salts: np.ndarray | None = None) -> list[Ranked]:
        """Return at most k documents for each query, best first, ties in the given order; `salts` as in `search`.

        A document that shares no word with the query is not ranked.
        """
        ranked = []
        for i in track(range(len(self.queries)), "search", "queries"):
            ((found, scores),) = best(self.scores(slice(i, i + 1)), k, some(salts, [i])).each()
            ranked.append(Ranked(found[scores > 0], scores[scores > 0]))
        return ranked


def index_words(documents: Sequence[str]) -> Any:
    """Index the words of texts in a bm25s.BM25; return None where no text has a word, which bm25s cannot index."""
    from trainer.ranking.retrieval.bm25s_without_jax import bm25s

    words = bm25s.tokenize(list(documents), stopwords="en", show_progress=False)
    if not words.vocab:
        return None
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index(words, show_progress=False)
    return index
