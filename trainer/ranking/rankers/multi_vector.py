"""Models of several vectors per text, whose score depends on no other document: ColBERT, a poly-encoder."""

from __future__ import annotations

from trainer.ranking.ranker import VectorRanker
from trainer.ranking.retrieval.system import Scored, Texts


class MultiVector(VectorRanker):
    """Ranks by scoring every document of a pool."""

    def system(self, texts: Texts) -> Scored:
        """Encode texts."""
        queries, documents = self.queries.vectors(texts.query_tokens()), self.documents.vectors(texts.pool_tokens())
        return Scored(self.model.score, queries, documents, self.device)
