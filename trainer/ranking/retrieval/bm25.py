"""BM25 (Robertson and Zaragoza, 2009), the baseline that every encoder is compared with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.common.words import STOP_WORDS, split_words
from deepsiam.trainer.ranking.retrieval.search import Ranked, best, some
from deepsiam.trainer.ranking.retrieval.system import System

NAME = "bm25"
K1, B = 1.2, 0.75  # Lucene's defaults
DESCRIPTION = f"BM25: Lucene variant, k1={K1}, b={B}, English stop words, no stemming"
FINGERPRINT = f"{DESCRIPTION}; words 2"  # another number where texts are split into other words


@dataclass(frozen=True)
class Bm25(System):
    """A system that scores documents by the words that they share with a query."""

    terms: Sequence[Sequence[int]]  # of each query: the words that a document has, too, as columns of `words`
    words: Any  # the documents', from `index_words`
    documents: int  # how many

    @classmethod
    def of_texts(cls, queries: Sequence[str], documents: Sequence[str]) -> Bm25:
        """Index the texts of a pool."""
        return cls.of_words(queries, index_words(documents), len(documents))

    @classmethod
    def of_words(cls, queries: Sequence[str], words: Any, documents: int) -> Bm25:
        """Ask an index of words; warn where it has no word of any query."""
        from deepsiam.trainer.training.engine.world import warn  # not before it is needed: it loads DeepSpeed

        terms = [words.get_tokens_ids(_terms(query)) if words else [] for query in queries]
        if queries and not any(terms):
            warn(f"warning: BM25 finds nothing: none of {len(queries):,} queries shares a word with a document")
        return cls(terms, words, documents)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.terms), self.documents

    def scores(self, rows: slice) -> np.ndarray:
        query_terms = self.terms[rows]
        scores = np.zeros((len(query_terms), self.documents), np.float32)
        for row, terms in zip(scores, query_terms, strict=True):
            if terms:
                row[:] = self.words.get_scores_from_ids(terms)
        return scores

    def of(self, query: int, documents: np.ndarray) -> np.ndarray:
        scores: np.ndarray = self.scores(slice(query, query + 1))[0, documents]
        return scores

    def rank(self, k: int, salts: np.ndarray | None = None) -> list[Ranked]:
        """Rank as every system; a document that shares no word with the query is not ranked."""
        ranked = []
        for i in track(range(len(self.terms)), "search", "queries"):
            ((documents, scores),) = best(self.scores(slice(i, i + 1)), k, some(salts, [i])).each()
            ranked.append(Ranked(documents[scores > 0], scores[scores > 0]))
        return ranked


def index_words(documents: Sequence[str]) -> Any:
    """Index the words of texts in a bm25s.BM25; return None where no text has a word, which bm25s cannot index."""
    columns: dict[str, int] = {}
    terms = [[columns.setdefault(word, len(columns)) for word in _terms(document)] for document in documents]
    if not columns:
        return None
    index = import_bm25s().BM25(k1=K1, b=B, method="lucene")
    index.index((terms, columns), show_progress=False)
    return index


def import_bm25s() -> Any:
    """Import bm25s without JAX, which would take three quarters of a GPU's memory, for a top-k that is not used."""
    hidden = "jax" not in sys.modules
    if hidden:
        sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        import bm25s
    finally:
        if hidden:
            del sys.modules["jax"]
    return bm25s


def _terms(text: str) -> list[str]:
    return [word for word in split_words(text) if word not in STOP_WORDS]
