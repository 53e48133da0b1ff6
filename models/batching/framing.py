"""Texts of one kind, queries or documents, as the arrays that an encoder reads: in training and in search alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.batching.packing import frame, pad
from models.interface import Vocabulary

Kept = Literal["start", "end"]


@dataclass(frozen=True)
class Framing:
    """Texts become `[CLS] text [SEP]`, padded to the longest; of a longer one than `max_tokens` the end is cut off.

    A model that reads its texts otherwise extends this class.
    """

    vocabulary: Vocabulary
    max_tokens: int  # [CLS] and [SEP] included
    kept: Kept = "start"  # "end" cuts off the start: the last turns of a dialogue say what comes next

    @property
    def room(self) -> int:
        """The most tokens of text in an input."""
        return self.max_tokens - 2

    def cut(self, tokens: np.ndarray) -> np.ndarray:
        """Return the token ids of a text that are read: texts that are equal here have equal vectors."""
        return tokens[-self.room :] if self.kept == "end" and len(tokens) > self.room else tokens[: self.room]

    def row(self, text: np.ndarray) -> np.ndarray:
        """Return the input of a text without padding, int64."""
        return frame(self.cut(text), self.vocabulary)

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `embed_queries` or `embed_documents`: `ids` int64 and `mask` bool, both [B, T]."""
        ids, mask = pad([self.row(text) for text in texts], self.max_tokens, self.vocabulary.pad)
        return {"ids": ids, "mask": mask}


@dataclass(frozen=True)
class ChunkFraming(Framing):
    """Texts become up to `chunks` inputs of `max_tokens` each, one after another: `ids` and `mask` are [B, C, T].

    A text with fewer than C chunks has inputs of [CLS] alone, the only ones with nothing in slot 1.
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
    """A query and a document become `[CLS] query [SEP] document [SEP]`, each cut like a text by itself."""

    query: Framing
    document: Framing

    def cut(self, query: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of both that are read: pairs that are equal here have equal scores."""
        return self.query.cut(query), self.document.cut(document)

    def arrays(self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `score_pairs` from P queries and documents, one of each for every pair.

        `ids` int64, `mask` bool, and `types` int64, 1 in the slots of the document and its [SEP]; all [P, T].
        """
        vocabulary = self.query.vocabulary
        sep, most = np.array([vocabulary.sep]), self.query.max_tokens + self.document.max_tokens - 1
        pairs = [self.cut(query, document) for query, document in zip(queries, documents, strict=True)]
        rows = [np.concatenate([frame(query, vocabulary), document, sep]) for query, document in pairs]
        ids, mask = pad(rows, most, vocabulary.pad)
        starts = np.array([len(query) + 2 for query, _ in pairs])
        types = (np.arange(ids.shape[1]) >= starts[:, None]) & mask
        return {"ids": ids, "mask": mask, "types": types.astype(np.int64)}


def count_text(arrays: Iterable[np.ndarray], vocabulary: Vocabulary) -> int:
    """Count the ids that are text: neither padding nor [CLS], [SEP], [MASK] or added tokens, which only frame it."""
    framing = (vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask)
    return sum(int((~np.isin(ids, framing) & (ids < vocabulary.vocab_size)).sum()) for ids in arrays)
