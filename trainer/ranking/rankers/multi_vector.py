"""Models of several vectors per text: ColBERT, a poly-encoder; and Cross-Thought's answer selection, of whole lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval.system import List, Scored, System, Texts, scores_of_lists


class MultiVectorRanker(VectorRanker):
    """Ranks by scoring every document of a pool; a score depends on no other document."""

    def system(self, texts: Texts, encoded_pool: System | None = None) -> Scored:
        queries = self.queries.vectors(texts.query_tokens())
        if isinstance(encoded_pool, Scored):
            return replace(encoded_pool, queries=queries)
        return Scored(self.model.score, queries, self.documents.vectors(texts.pool_tokens()), self.device)


class ListRanker(VectorRanker):
    """Re-ranks lists, each as a whole: the score of a document depends on the rest of its list."""

    searches = by_itself = False

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        texts = Texts.of_lists(self.collection, lists)
        queries, documents = self.queries.vectors(texts.query_tokens()), self.documents.vectors(texts.pool_tokens())

        def score_list(query: int, listed: np.ndarray) -> np.ndarray:
            rows = documents.rows[listed]
            with torch.inference_mode():
                query_vectors = queries.padded(queries.rows[query : query + 1], self.device)
                scores = self.model.score(query_vectors, documents.padded(rows, self.device)).float().cpu().numpy()[0]
            _, first_places, places = np.unique(rows, return_index=True, return_inverse=True)
            tied: np.ndarray = scores[first_places][places]  # equal texts, of which the model reads each
            return tied

        return scores_of_lists(score_list, texts, lists, work)
