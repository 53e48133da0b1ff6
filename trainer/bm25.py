"""BM25 (Robertson and Zaragoza, 2009), the baseline that every encoder must be seen beside."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.retrieval import best

K1, B = 1.2, 0.75  # Lucene's own
DESCRIPTION = f"BM25: Lucene variant, k1={K1}, b={B}, English stop words, no stemming"


def rank(queries: Sequence[str], documents: Sequence[str], k: int) -> list[list[int]]:
    """Positions of at most k documents for each query, best first, ties by corpus order.

    A document that shares no word with the query is not ranked.
    """
    import bm25s

    words = bm25s.tokenize(list(documents), stopwords="en", show_progress=False)
    if not words.vocab:
        return [[] for _ in queries]
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index(words, show_progress=False)
    ranked = []
    for terms in bm25s.tokenize(list(queries), stopwords="en", return_ids=False, show_progress=False):
        known = index.get_tokens_ids(terms)
        documents_, scores = best([index.get_scores_from_ids(known)[None]], k)
        ranked.append(documents_[scores > 0].tolist())
    return ranked
