"""Turn queries or documents into the arrays that an encoder reads, in training and in search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from models.batching.packing import frame, pad
from models.interface import Vocabulary

Kept = Literal["start", "end"]


@dataclass(frozen=True)
class Framing:
    """Texts become `[CLS] text [SEP]`, truncated at the end to `max_tokens` and padded to the longest.

    A model with another input format extends this class.
    """

    vocabulary: Vocabulary
    max_tokens: int  # [CLS] and [SEP] included
    kept: Kept = "start"  # "end" truncates the start: the last turns of a dialogue tell most about the next

    @property
    def room(self) -> int:
        """The maximum number of text tokens in an input."""
        return self.max_tokens - 2

    def cut(self, tokens: np.ndarray) -> np.ndarray:
        """Return the token ids that remain after truncation: texts equal in these have equal vectors."""
        return tokens[-self.room :] if self.kept == "end" and len(tokens) > self.room else tokens[: self.room]

    def row(self, text: np.ndarray) -> np.ndarray:
        """Return the unpadded input of a text, int64."""
        return frame(self.cut(text), self.vocabulary)

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `embed_queries` or `embed_documents`: `ids` int64 and `mask` bool, both [B, T]."""
        ids, mask = pad([self.row(text) for text in texts], self.max_tokens, self.vocabulary.pad)
        return {"ids": ids, "mask": mask}


@dataclass(frozen=True)
class ChunkFraming(Framing):
    """Texts become up to `chunks` inputs of `max_tokens` each, one after another: `ids` and `mask` are [B, C, T].

    A text with fewer than C chunks is filled up with inputs of [CLS] alone, recognisable by their empty slot 1.
    """

    chunks: int = 1

    def cut(self, tokens: np.ndarray) -> np.ndarray:
        """Return the token ids that any chunk reads."""
        return tokens[: self.chunks * self.room]

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make `ids` int64 and `mask` bool, both [B, C, T]."""
        size, cut = self.room, [self.cut(text) for text in texts]
        pieces = [[text[at : at + size] for at in range(0, max(1, len(text)), size)] for text in cut]
        most = max(map(len, pieces))
        nothing = np.array([self.vocabulary.cls])
        rows = [[*(frame(piece, self.vocabulary) for piece in own), *[nothing] * (most - len(own))] for own in pieces]
        ids, mask = pad([row for own in rows for row in own], self.max_tokens, self.vocabulary.pad)
        return {"ids": ids.reshape(len(texts), most, -1), "mask": mask.reshape(len(texts), most, -1)}


@dataclass(frozen=True)
class PairFraming:
    """A query and a document become `[CLS] query [SEP] document [SEP]`, each truncated as if it were a single text."""

    query: Framing
    document: Framing
    separators: int = 1  # [SEP]s between the texts: RoBERTa's pairs have two
    max_tokens: int | None = None  # of a pair; the longer text loses what is too much, as in Hugging Face's tokenizers

    @property
    def frame(self) -> int:
        """The number of special tokens of a pair."""
        return 2 + self.separators

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a pair."""
        both = self.query.room + self.document.room + self.frame
        return both if self.max_tokens is None else min(both, self.max_tokens)

    def cut(self, query: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both texts' token ids after truncation: pairs equal in these have equal scores."""
        query, document = self.query.cut(query), self.document.cut(document)
        room = self.longest - self.frame
        if len(query) + len(document) <= room:
            return query, document
        shorter = min(len(query), len(document), room // 2)  # a text of half the room or less stays whole
        of_query = shorter if len(query) <= len(document) else room - shorter
        return query[:of_query], document[: room - of_query]

    def arrays(self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `score_pairs` from P queries and P documents, one of each per pair.

        They are `ids` int64, `mask` bool, and `types` int64 (1 in the slots of the document and its [SEP]); all [P, T].
        """
        pairs = [self.cut(query, document) for query, document in zip(queries, documents, strict=True)]
        return _joined(pairs, self.longest, self.query.vocabulary, self.separators)


@dataclass(frozen=True)
class DuelFraming:
    """A query and two documents become `[CLS] query [SEP] first [SEP] second [SEP]`.

    The query is truncated as if it were a single text, and each document also to half of what the query leaves.
    """

    query: Framing
    document: Framing
    max_tokens: int  # of a duel

    frame: ClassVar[int] = 4  # the number of special tokens of a duel

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a duel."""
        return min(self.query.room + 2 * self.document.room + self.frame, self.max_tokens)

    def cut(self, query: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of the query and of one of its documents that remain after truncation."""
        query = self.query.cut(query)
        half = (self.max_tokens - (len(query) + 2)) // 2  # with its [SEP]
        return query, self.document.cut(document)[: half - 1]

    def arrays(
        self, queries: Sequence[np.ndarray], firsts: Sequence[np.ndarray], seconds: Sequence[np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Make the arguments of `score_duels` from D queries and two documents for each.

        They are `ids` int64, `mask` bool, and `types` int64 (1 in the slots of the first document and its [SEP], 2 in
        those of the second); all [D, T].
        """
        duels = [
            (*self.cut(query, first), self.cut(query, second)[1])
            for query, first, second in zip(queries, firsts, seconds, strict=True)
        ]
        return _joined(duels, self.longest, self.query.vocabulary)


def _joined(
    inputs: Sequence[Sequence[np.ndarray]], longest: int, vocabulary: Vocabulary, separators: int = 1
) -> dict[str, np.ndarray]:
    """Make `[CLS] first [SEP] second [SEP] ...` of each input's texts, which have token types 0, 1, ...

    `separators` [SEP]s follow the first text, and one follows each other.
    """
    between, sep = np.full(separators - 1, vocabulary.sep), np.array([vocabulary.sep])
    rows = [
        np.concatenate([frame(first, vocabulary), between, *(part for text in others for part in (text, sep))])
        for first, *others in inputs
    ]
    ids, mask = pad(rows, longest, vocabulary.pad)
    lengths = np.array([[len(text) + 1 for text in texts[:-1]] for texts in inputs])
    lengths[:, 0] += separators
    starts = lengths.cumsum(axis=1)  # of all texts but the first, [N, n - 1]
    types = (np.arange(ids.shape[1])[:, None] >= starts[:, None]).sum(axis=2) * mask
    return {"ids": ids, "mask": mask, "types": types.astype(np.int64)}
