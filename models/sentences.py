"""What methods that learn from a sentence and its surroundings share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.task import Document, MarkedDocument, Vocabulary

ENOUGH = 16  # documents without one boundary: no accident any more


def sentences(document: Document, longest: int) -> tuple[list[np.ndarray], int]:
    """The document's sentences, none empty and no headings; one of more than `longest` tokens is cut into pieces.

    Returns:
        the sentences, and how many leading ones are only context (`models.task.MarkedDocument`).
    """
    marked = document if isinstance(document, MarkedDocument) else MarkedDocument(document)
    parts = [
        (number < marked.context, segment[at : at + longest])
        for number, segment in enumerate(document)
        if number not in marked.headings
        for at in range(0, len(segment), longest)
    ]
    return [text for _, text in parts], sum(known for known, _ in parts)


def check_boundaries(documents: Sequence[Document]) -> None:
    """Refuse data whose documents are not divided into sentences.

    Raises:
        ValueError: of at least `ENOUGH` documents not one has two segments.
    """
    if len(documents) >= ENOUGH and all(sum(len(s) > 0 for s in document) < 2 for document in documents):
        raise ValueError(
            f"needs sentence boundaries, but of {len(documents)} documents in a row none has two sentences: "
            "prepare the data with a segment for each sentence"
        )


def frame(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """`[CLS] tokens [SEP]`, int64."""
    framed = np.empty(len(tokens) + 2, dtype=np.int64)
    framed[0], framed[1:-1], framed[-1] = vocabulary.cls, tokens, vocabulary.sep
    return framed
