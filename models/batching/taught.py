"""The texts of a micro-batch by their keys, and a teacher's vectors in place of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from deepsiam.models.interface import Batcher, MicroBatch

SIDES = {"query": "queries", "document": "documents"}


class Teacher(Protocol):
    """Vectors of texts by a teacher."""

    def vectors(self, side: str, keys: np.ndarray) -> np.ndarray:
        """Return the vectors, fp32 [n, W], of texts of a side by their keys, int64 [n]."""


def text_keys(queries: Sequence[int], documents: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
    """Return arrays of the keys of texts, by `candidates.text_key`: `teacher_queries` and `teacher_documents`, int64.

    Batchers make them where a method learns a teacher's vectors; `TaughtBatcher` puts these in their place.
    """
    keys = {"query": queries, "document": documents}
    return {f"teacher_{name}": np.array(keys[side], np.int64) for side, name in SIDES.items()}


class TaughtBatcher:
    """A batcher whose `teacher_queries` and `teacher_documents` are a teacher's vectors, fp32 [Q, W] and [D, W]."""

    def __init__(self, batcher: Batcher, teacher: Teacher) -> None:
        self.batcher, self.teacher = batcher, teacher

    def examples(self, documents: Sequence[Any]) -> list[Any]:
        """Cut documents into examples, as the batcher does."""
        return self.batcher.examples(documents)

    def origins(self, documents: Sequence[Any]) -> list[list[int]]:
        """Return the documents of each example, likewise."""
        return self.batcher.origins(documents)

    def micro_batch(self, examples: Sequence[Any], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Make the batcher's micro-batch, with the teacher's vectors."""
        batch = self.batcher.micro_batch(examples, rngs)
        names = {side: f"teacher_{name}" for side, name in SIDES.items()}
        taught = {name: self.teacher.vectors(side, batch.arrays[name]) for side, name in names.items()}
        return batch._replace(arrays={**batch.arrays, **taught})
