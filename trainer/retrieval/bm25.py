"""BM25 (Robertson and Zaragoza, 2009), the baseline that every encoder is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.retrieval.search import best

K1, B = 1.2, 0.75  # Lucene's defaults
DESCRIPTION = f"BM25: Lucene variant, k1={K1}, b={B}, English stop words, no stemming"


def rank(queries: Sequence[str], documents: Sequence[str], k: int) -> list[list[int]]:
    """Rank at most k documents for each query: their positions, best first, equal scores in the order given.

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
        ids = index.get_tokens_ids(terms)
        ranking = best(index.get_scores_from_ids(ids)[None], k)
        ranked.append(ranking.documents[ranking.scores > 0].tolist())
    return ranked
