"""Models of one vector per text: the nearest document is the best."""

import numpy as np

from deepsiam import register
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval.system import Embedded, System, Texts


class Euclidean(VectorRanker):
    """Ranks by exact search: |q - d|² is smallest where [2q, 1] · [d, -|d|²] is largest."""

    def system(self, texts: Texts, known: System | None = None) -> Embedded:
        """Encode texts; of `known`, the same documents encoded before, nothing is reused."""
        queries = self.queries.embeddings(texts.query_tokens())
        documents = self.documents.embeddings(texts.pool_tokens())
        lengths = np.square(documents).sum(axis=1, keepdims=True)
        return Embedded(np.hstack([2 * queries, np.ones_like(queries[:, :1])]), np.hstack([documents, -lengths]))


register("ranker", "euclidean", Euclidean)
