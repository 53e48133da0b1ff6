"""Models of one vector per text: scores are inner products."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.ranker import NUMBER, PROMPTS, VectorRanker
from deepsiam.trainer.ranking.retrieval.system import Embedded, System, Texts

if TYPE_CHECKING:
    from typing_extensions import Self

DIMENSIONS = "dimensions"


def open_dense(model: Path, precision: str | None, purpose: str) -> DenseRanker:
    """Open a model of one vector per text, without a collection; for another raise InputError, with the purpose."""
    trained = load_any(model)
    if getattr(trained.model, "kind", None) != "dense":
        raise InputError(f"{trained.checkpoint}: a {trained.kind} has no one vector for a text, {purpose}")
    return DenseRanker(trained, Collection.of_texts([], [], trained.tokenizer), precision)


class DenseRanker(VectorRanker):
    """Ranks by exact search among embeddings, or among their first `dimensions` numbers."""

    OPTIONS = {**PROMPTS, DIMENSIONS: NUMBER}
    method: SiameseConfig

    @property
    def width(self) -> int:
        return self.dimensions or int(self.model.width)

    @property
    def note(self) -> str | None:
        trained = self.method.dimensions or (self.model.width,)
        if self.width in trained:
            return None
        return f"{self.title} was trained for {', '.join(map(str, trained))} dimensions, not for its first {self.width}"

    def cut(self, dimensions: int) -> Self:
        if dimensions > self.width:
            raise InputError(
                f"{self.title} has vectors of {self.width} dimensions, and cannot cut them to {dimensions}"
            )
        ranker = copy.copy(self)
        ranker.dimensions = dimensions
        return ranker

    def with_options(self, options: Mapping[str, str]) -> Self:
        prompted = super().with_options(options)
        try:
            return prompted.cut(int(options[DIMENSIONS])) if DIMENSIONS in options else prompted
        except InputError as error:
            raise ValueError(str(error)) from None

    def stored(self, encoded: Vectors) -> tuple[np.ndarray, np.ndarray]:
        return super().stored(encoded if self.dimensions is None else self.model.cut(encoded, self.dimensions))

    def system(self, texts: Texts, encoded_pool: System | None = None) -> Embedded:
        queries = self.queries.embeddings(texts.query_tokens())
        if isinstance(encoded_pool, Embedded):
            return replace(encoded_pool, queries=queries)
        return Embedded(queries, self.documents.embeddings(texts.pool_tokens()), self.accelerator)
