"""Turn queries or documents into the arrays that an encoder reads, in training and in search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
        vocabulary = self.query.vocabulary
        between, sep = np.full(self.separators - 1, vocabulary.sep), np.array([vocabulary.sep])
        pairs = [self.cut(query, document) for query, document in zip(queries, documents, strict=True)]
        rows = [np.concatenate([frame(query, vocabulary), between, document, sep]) for query, document in pairs]
        ids, mask = pad(rows, self.longest, vocabulary.pad)
        starts = np.array([len(query) + 1 + self.separators for query, _ in pairs])
        types = (np.arange(ids.shape[1]) >= starts[:, None]) & mask
        return {"ids": ids, "mask": mask, "types": types.astype(np.int64)}
