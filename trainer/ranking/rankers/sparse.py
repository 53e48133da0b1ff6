"""Models with a weight for each term of a vocabulary, as SPLADE: scores are inner products."""

from __future__ import annotations

from dataclasses import replace

from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval import sparse
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.ranking.retrieval.system import System, Texts


class Sparse(VectorRanker):
    """Ranks by exact search among the terms of texts; those of weight 0 take no memory beyond their batch."""

    def passes(self, documents: int) -> int:
        """A query whose terms are its own tokens is not read by a model."""
        is_read = not isinstance(self.method, SparseConfig) or self.method.query != "tokens"
        return super().passes(documents) if is_read else 0

    @property
    def vocabulary(self) -> int:
        """The number of terms that have a weight."""
        return int(self.model.trunk.config.vocab_size)

    @property
    def queries(self) -> TextEncoder:
        """The encoder of queries."""
        return replace(super().queries, kept=sparse.terms_of)

    @property
    def documents(self) -> TextEncoder:
        """The encoder of documents."""
        return replace(super().documents, kept=sparse.terms_of)

    def system(self, texts: Texts, known: System | None = None) -> sparse.Sparse:
        """Encode texts."""
        queries = self.queries.vectors(texts.query_tokens())
        if isinstance(known, sparse.Sparse):
            return replace(known, queries=queries)
        return sparse.Sparse(queries, self.documents.vectors(texts.pool_tokens()))
