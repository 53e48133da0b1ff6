"""Models with a weight for each term of a vocabulary, as SPLADE: scores are inner products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval.sparse import SparseSystem, terms_of
from deepsiam.trainer.ranking.retrieval.system import System, Texts


class SparseRanker(VectorRanker):
    """Ranks by exact search among the terms of texts; those of weight 0 take no memory beyond their batch."""

    def passes(self, documents: int) -> int:
        """A query that no encoder reads takes no pass."""
        is_read = not isinstance(self.method, SparseConfig) or self.method.encodes_queries
        return super().passes(documents) if is_read else 0

    @property
    def vocabulary(self) -> int:
        """The number of terms that have a weight."""
        return int(self.model.trunk.config.vocab_size)

    def stored(self, encoded: Vectors) -> tuple[np.ndarray, np.ndarray]:
        return terms_of(encoded)

    def system(self, texts: Texts, encoded_pool: System | None = None) -> SparseSystem:
        queries = self.queries.vectors(texts.query_tokens())
        if isinstance(encoded_pool, SparseSystem):
            return replace(encoded_pool, queries=queries)
        return SparseSystem(queries, self.documents.vectors(texts.pool_tokens()))
