"""Models of one vector per text: scores are inner products."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.options import NUMBER
from deepsiam.trainer.ranking.ranker import PROMPTS, VectorRanker
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder, without_padding
from deepsiam.trainer.ranking.retrieval.system import Embedded, System, Texts

if TYPE_CHECKING:
    from typing_extensions import Self

DIMENSIONS = "dimensions"


class Dense(VectorRanker):
    """Ranks by exact search among embeddings, or among their first `dimensions` numbers."""

    OPTIONS = {**PROMPTS, DIMENSIONS: NUMBER}
    method: SiameseConfig

    @property
    def width(self) -> int:
        """The numbers of a vector that count."""
        return self.dimensions or int(self.model.width)

    @property
    def note(self) -> str | None:
        """Whether it was trained to rank by that many."""
        trained = self.method.dimensions or (self.model.width,)
        if self.width in trained:
            return None
        return f"{self.title} was trained for {', '.join(map(str, trained))} dimensions, not for its first {self.width}"

    def cut(self, dimensions: int) -> Self:
        """Return the ranker by the first numbers of vectors, which shares its model."""
        if dimensions > self.width:
            raise InputError(
                f"{self.title} has vectors of {self.width} dimensions, and cannot cut them to {dimensions}"
            )
        chosen = copy.copy(self)
        chosen.dimensions = dimensions
        return chosen

    def with_options(self, options: Mapping[str, str]) -> Self:
        """Return the ranker with other prompts, and by the first `dimensions` numbers of its vectors."""
        prompted = super().with_options(options)
        try:
            return prompted.cut(int(options[DIMENSIONS])) if DIMENSIONS in options else prompted
        except InputError as error:
            raise ValueError(str(error)) from None

    @property
    def queries(self) -> TextEncoder:
        """The encoder of queries."""
        return self._cutting(super().queries)

    @property
    def documents(self) -> TextEncoder:
        """The encoder of documents."""
        return self._cutting(super().documents)

    def _cutting(self, encoder: TextEncoder) -> TextEncoder:
        if self.dimensions is None:
            return encoder

        def first(encoded: Vectors) -> tuple[np.ndarray, np.ndarray]:
            return without_padding(self.model.cut(encoded, self.dimensions))

        return replace(encoder, kept=first)

    def system(self, texts: Texts, known: System | None = None) -> Embedded:
        """Encode texts."""
        queries = self.queries.embeddings(texts.query_tokens())
        if isinstance(known, Embedded):
            return replace(known, queries=queries)
        return Embedded(queries, self.documents.embeddings(texts.pool_tokens()), self.accelerator)
