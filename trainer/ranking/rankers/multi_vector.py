"""Models of several vectors per text, whose score depends on no other document: ColBERT, a poly-encoder."""

from __future__ import annotations

from dataclasses import replace

from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval.system import Scored, System, Texts


class MultiVectorRanker(VectorRanker):
    """Ranks by scoring every document of a pool."""

    def system(self, texts: Texts, known: System | None = None) -> Scored:
        queries = self.queries.vectors(texts.query_tokens())
        if isinstance(known, Scored):
            return replace(known, queries=queries)
        return Scored(self.model.score, queries, self.documents.vectors(texts.pool_tokens()), self.device)
