"""Models whose score of a document depends on the rest of its list: Cross-Thought's answer selection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.ranking.ranker import VectorRanker
from trainer.ranking.retrieval.system import List, ScoredTogether, Texts, scores_of_lists


class Lists(VectorRanker):
    """Re-ranks lists, each as a whole."""

    searches = False

    def scores(self, lists: Sequence[List], what: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query, fp32 [n]; every text is encoded once."""
        texts = Texts.of_lists(self.collection, lists)
        queries, documents = self.queries.vectors(texts.query_tokens()), self.documents.vectors(texts.pool_tokens())
        system = ScoredTogether(self.model.score, queries, documents, self.device)
        return scores_of_lists(system, texts, lists, what)
