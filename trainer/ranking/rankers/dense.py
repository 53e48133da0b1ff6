"""Models of one vector per text: scores are inner products."""

from __future__ import annotations

from trainer.ranking.ranker import VectorRanker
from trainer.ranking.retrieval.system import Embedded, Texts


class Dense(VectorRanker):
    """Ranks by exact search among embeddings."""

    def system(self, texts: Texts) -> Embedded:
        """Encode texts."""
        queries, documents = self.queries, self.documents
        return Embedded(
            queries.embeddings(texts.query_tokens()), documents.embeddings(texts.pool_tokens()), self.accelerator
        )
