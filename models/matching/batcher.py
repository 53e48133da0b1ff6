"""The bases of all matching batchers: choose each query's documents, and record their columns."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from deepsiam.models.batching.candidates import Candidates, Example, columns, labels_of, scores_of
from deepsiam.models.batching.packing import text_tokens
from deepsiam.models.interface import MicroBatch, Vocabulary
from deepsiam.models.layers.vector_losses import VECTOR_LOSSES
from deepsiam.models.matching.config import MatchingConfig

Keys = TypeVar("Keys", bound=MatchingConfig)


class ExampleBatcher(Generic[Keys]):
    """An example is a query and what the data give for it; its negatives are drawn with the micro-batch."""

    def __init__(self, keys: Keys, vocabulary: Vocabulary, candidates: Candidates) -> None:
        keys.check_frame(vocabulary)
        self.keys, self.vocabulary, self.candidates = keys, vocabulary, candidates

    def examples(self, documents: Sequence[Example]) -> list[Example]:
        """Return the examples unchanged."""
        return list(documents)

    def origins(self, documents: Sequence[Example]) -> list[list[int]]:
        """Return the number of each example."""
        return [[i] for i in range(len(documents))]

    def choose(self, examples: Sequence[Example], rngs: Iterable[np.random.Generator]) -> list[list[int]]:
        """Return each query's documents, its negatives drawn with its own rng."""
        return [self.keys.choose(self.candidates, example, rng) for example, rng in zip(examples, rngs, strict=True)]

    def candidate_arrays(self, examples: Sequence[Example], choices: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        """Return the columns of each query's documents, their labels, and a teacher's scores where a loss learns them.

        candidates      int64 [Q, n], -1 where a query has fewer than n; the relevant or best one comes first
        labels          fp32 [Q, n]
        scores          fp32 [Q, n], only where a loss learns them
        """
        arrays = {"candidates": columns(choices), "labels": labels_of(examples, choices)}
        return arrays | ({"scores": scores_of(examples, choices, self.keys.teacher_scale)} if self.keys.taught else {})


class CandidateBatcher(ABC, ExampleBatcher[Keys]):
    """Examples -> the arrays of their texts, and `ExampleBatcher.candidate_arrays` of each query's candidates.

    The order of the documents: the first candidate of each query, then the others of query 0, of query 1, ...
    """

    def micro_batch(self, examples: Sequence[Example], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each query's negatives with its own rng; frame and pad the texts."""
        choices = self.choose(examples, rngs)
        # the positives first: document i is query i's, the diagonal of in-batch scores
        documents = [row[0] for row in choices] + [i for row in choices for i in row[1:]]
        queries = [*range(len(choices)), *(query for query, row in enumerate(choices) for _ in row[1:])]
        arrays = self.arrays(examples, documents, queries)
        ids = [array for name, array in arrays.items() if name.endswith("_ids")]
        arrays |= self.candidate_arrays(examples, choices)
        # binary counts pairs, a loss of vectors texts, the others queries
        counts = {"binary": len(documents), **dict.fromkeys(VECTOR_LOSSES, len(examples) + len(documents))}
        targets = {term: counts.get(loss, len(examples)) for loss in self.keys.losses for term in self.keys.terms(loss)}
        return MicroBatch(arrays, targets, text_tokens(ids, self.vocabulary))

    @abstractmethod
    def arrays(
        self, examples: Sequence[Example], documents: Sequence[int], queries: Sequence[int]
    ) -> dict[str, np.ndarray]:
        """Make the arrays of the texts: those of `examples`, and `documents`, each a candidate of one of `queries`."""
