"""A small corpus, and examples of it, for the tests of the matching models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.interface import MicroBatch
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.registry import MATCHING
from tests.models.tiny import VOCABULARY, rngs


class Corpus:
    """Document i has i + 1 tokens, all equal to 5 + i; documents 10 and 11 are copies of 0 and 1."""

    def tokens(self, i: int) -> np.ndarray:
        """The ids of document i."""
        return np.full(i % 10 + 1, 5 + i % 10, dtype=np.uint16)

    def text(self, i: int) -> str:
        """The text of document i."""
        return spelled(self.tokens(i))


def spelled(tokens: Iterable[int]) -> str:
    """The text of some tokens of `VOCABULARY`."""
    return "".join(f"w{token}" for token in tokens)


def positive(document: int, *relevant: int, query: Iterable[int] = (30, 31), given: Sequence[int] = ()) -> Example:
    """An example of the unit `positive`, with `given` negatives."""
    labels = np.array([1, *[0] * len(given)], np.float32)
    known = np.array(sorted({document, *relevant}))
    return Example(np.array([*query], np.uint16), np.array([document, *given]), labels, known, text=spelled(query))


def group(labels: dict[int, float], query: Iterable[int] = (30, 31)) -> Example:
    """An example of the unit `group` or `pair`: labels by document."""
    relevant = np.array([document for document, label in labels.items() if label > 0], np.int64)
    return Example(
        np.array([*query], np.uint16),
        np.array([*labels]),
        np.array([*labels.values()], np.float32),
        relevant,
        text=spelled(query),
    )


def keys_of(name: str, **keys: Any) -> Any:
    """The keys of a matching model for short texts."""
    return MATCHING[name].model_validate({"name": name, "max_query_tokens": 6, "max_document_tokens": 12, **keys})


def siamese(**keys: Any) -> SiameseConfig:
    """The keys of a Siamese network for short texts."""
    return keys_of("siamese", **keys)  # type: ignore[no-any-return]


def micro_batch(
    keys: MatchingConfig, examples: Sequence[Example], pool: Iterable[int] = range(10), start: int = 0, **given: Any
) -> MicroBatch:
    """The micro-batch of examples, with negatives from `pool`; `rngs` are generators start, start + 1, ... or given.

    A vocabulary may be given, too.
    """
    batcher = keys.batcher(given.get("vocabulary", VOCABULARY), Candidates(Corpus(), np.array([*pool])))
    return batcher.micro_batch(batcher.examples(examples), given.get("rngs") or rngs(len(examples), start))
