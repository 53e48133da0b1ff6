"""A document's sentences, for the methods that learn from a sentence and its surroundings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from deepsiam.models.interface import TokenDocument

Example = TypeVar("Example")
ENOUGH = 16  # this many documents without a sentence boundary are refused; fewer may be chance


def sentences(document: TokenDocument, max_tokens: int) -> tuple[list[np.ndarray], int]:
    """Return a document's sentences, without headings and empty ones, split into pieces of up to `max_tokens`.

    Returns:
        the sentences, and how many of the leading ones are only context (`models.interface.TokenDocument`).
    """
    parts = [
        (number < document.context, segment[start : start + max_tokens])
        for number, segment in enumerate(document.segments)
        if number not in document.headings
        for start in range(0, len(segment), max_tokens)
    ]
    return [text for _, text in parts], sum(is_context for is_context, _ in parts)


def passages(document: TokenDocument, max_tokens: int) -> list[list[np.ndarray]]:
    """Cut a document's sentences into passages, consecutive ones each, as long as `max_tokens` allow.

    A passage of one sentence is left out. So is a passage of sentences that are only context, because another document
    contains it.
    """
    texts, context = sentences(document, max_tokens)
    runs: list[list[np.ndarray]] = []
    room = 0
    for text in texts:
        if len(text) > room:
            runs.append([])
            room = max_tokens
        runs[-1].append(text)
        room -= len(text)
    ends = np.cumsum([len(run) for run in runs])  # counted in sentences, as `context` is
    return [run for run, end in zip(runs, ends, strict=True) if len(run) > 1 and end > context]


class SentenceBatcher(ABC, Generic[Example]):
    """The part of a batcher whose examples are sentences of one document each."""

    def examples(self, documents: Sequence[TokenDocument]) -> list[Example]:
        """Cut all documents into examples, headings left out."""
        check_boundaries(documents)
        return [example for _, example in self.numbered(documents)]

    def origins(self, documents: Sequence[TokenDocument]) -> list[list[int]]:
        """Return the number of each example's document."""
        return [[number] for number, _ in self.numbered(documents)]

    @abstractmethod
    def numbered(self, documents: Sequence[TokenDocument]) -> list[tuple[int, Example]]:
        """Cut all examples, with the numbers of their documents; those of one document are placed far apart."""


def check_boundaries(documents: Sequence[TokenDocument]) -> None:
    """Refuse data whose documents are not divided into sentences."""
    if len(documents) >= ENOUGH and all(sum(len(s) > 0 for s in document.segments) < 2 for document in documents):
        raise ValueError(
            f"needs sentence boundaries, but none of {len(documents)} documents in a row has two sentences: "
            "prepare the data with a segment for each sentence"
        )
