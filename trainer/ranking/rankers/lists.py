"""Models whose score of a document depends on the rest of its list: Cross-Thought's answer selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from models.vectors import Vectors
from trainer.ranking.ranker import VectorRanker
from trainer.ranking.retrieval.encode import TextVectors
from trainer.ranking.retrieval.system import List, Texts, scores_of_lists


class Lists(VectorRanker):
    """Re-ranks lists, each as a whole."""

    searches = False

    def scores(self, lists: Sequence[List], what: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query, fp32 [n]; every text is encoded once."""
        texts = Texts.of_lists(self.collection, lists)
        sides = self.queries.vectors(texts.query_tokens()), self.documents.vectors(texts.pool_tokens())
        return scores_of_lists(partial(score_together, self.model.score, self.device, *sides), texts, lists, what)


def score_together(
    score: Callable[[Vectors, Vectors], Tensor],
    device: torch.device | str,
    queries: TextVectors,
    documents: TextVectors,
    query: int,
    listed: np.ndarray,
) -> np.ndarray:
    """Return the scores of a list's documents, fp32 [n], for a query; equal texts tie, and the model reads each."""
    rows = documents.rows[listed]
    with torch.inference_mode():
        of_query = queries.padded(queries.rows[query : query + 1], device)
        scores = score(of_query, documents.padded(rows, device)).float().cpu().numpy()[0]
    _, first, places = np.unique(rows, return_index=True, return_inverse=True)
    tied: np.ndarray = scores[first][places]
    return tied
