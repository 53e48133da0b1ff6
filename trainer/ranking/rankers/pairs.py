"""Score pairs by a model that reads a query and a document together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from deepsiam.models.arrays import on_device
from deepsiam.models.matching.pair_model import PairModelConfig
from deepsiam.trainer.ranking.ranker import ModelRanker, split_by_list
from deepsiam.trainer.ranking.retrieval.system import List


class PairRanker(ModelRanker):
    """Re-ranks: it scores or classifies pairs of a query and a document."""

    searches = False
    method: PairModelConfig

    def passes(self, documents: int) -> int:
        return documents

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query: fp32 [n], or logits of classes [n, C], in the order given."""
        framing = self.method.pair_framing(self.loaded.tokenizer)
        queries, documents = self.collection.queries, self.collection.corpus

        def read(query: int, document: int) -> np.ndarray:
            query_ids, document_ids = framing.cut(queries.tokens(query), documents.tokens(document))
            return np.concatenate([[len(query_ids)], query_ids, document_ids])

        def score(pairs: list[tuple[int, int]]) -> torch.Tensor:
            texts = [queries.tokens(query) for query, _ in pairs], [documents.tokens(document) for _, document in pairs]
            scores: torch.Tensor = self.model.score_pairs(**on_device(framing.arrays(*texts), self.device))
            return scores

        scores, pair_numbers = self.distinct_scores(lists, work, read, score, framing.frame - 1)
        return split_by_list(scores[pair_numbers], lists)
