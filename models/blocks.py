"""Packing sentences into blocks of at most `max_tokens`, their order, and padding them into a rectangle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import numpy as np

from models.task import Document, Vocabulary

Packing = Literal["complete", "complete_doc"]
Item = TypeVar("Item")


def pack(documents: Iterable[Document], max_tokens: int, packing: Packing, vocabulary: Vocabulary) -> list[np.ndarray]:
    """Pack whole sentences, in order, into blocks `[CLS] s1 [SEP] s2 [SEP] ...`.

    `complete` lets a block run on into the next document, `complete_doc` starts a new block there (fairseq's
    names, which the SEED authors' code uses). Empty sentences are dropped. A sentence too long for any block
    is cut into pieces of max_tokens - 2; the authors' code makes an oversize block of it. The last block, and
    under `complete_doc` each document's last, is kept however short: a document of one token is a block.

    Args:
        documents: token ids without special tokens.
        max_tokens: the longest block, special tokens included; at least 3.
        packing: `complete` or `complete_doc`.
        vocabulary: gives [CLS] and [SEP].

    Returns:
        One int64 array of ids a block.
    """
    streams: Iterable[Document] = documents
    if packing == "complete":
        streams = [[sentence for document in documents for sentence in document]]
    return [block for sentences in streams for block in _blocks(sentences, max_tokens, vocabulary)]


def _blocks(sentences: Document, max_tokens: int, vocabulary: Vocabulary) -> Iterator[np.ndarray]:
    """Greedy blocks of consecutive sentences; a loop over blocks, since one over sentences takes most of the time."""
    longest = max_tokens - 2
    lengths = [len(sentence) for sentence in sentences if len(sentence)]
    if not lengths:
        return
    if max(lengths) > longest:
        lengths = [min(longest, length - start) for length in lengths for start in range(0, length, longest)]
    ends = np.cumsum(lengths)
    ids = np.insert(np.concatenate(sentences, dtype=np.int64), ends, vocabulary.sep)
    ends += np.arange(1, len(ends) + 1)  # of the sentences with their [SEP]
    cls = np.array([vocabulary.cls])
    start = 0
    while start < len(ids):
        end = int(ends[ends.searchsorted(start + max_tokens - 1, side="right") - 1])
        yield np.concatenate([cls, ids[start:end]])
        start = end


def scatter(examples: Sequence[Item]) -> list[Item]:
    """The examples of a window in an order, always the same, that parts those of one document.

    Side by side they would share a micro-batch: all of it would be about one book, and so would its gradient.
    """
    return [examples[i] for i in np.random.default_rng(0).permutation(len(examples))]


def pad(rows: Sequence[np.ndarray], max_tokens: int, fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Right-pad rows of ids to the longest, rounded up to a multiple of 8 but not above `max_tokens`.

    Matrix units want multiples of 8, and few widths mean few kernel shapes; padding always to `max_tokens`
    would compute on nothing where all rows are short.

    Returns:
        ids int64 [B, T] and attention_mask bool [B, T], true where there is a token.
    """
    longest = max(len(row) for row in rows)
    width = min(-(-longest // 8) * 8, max_tokens)
    ids = np.full((len(rows), width), fill, dtype=np.int64)
    for row, padded in zip(rows, ids, strict=True):
        padded[: len(row)] = row
    lengths = np.array([len(row) for row in rows])
    return ids, np.arange(width) < lengths[:, None]


def pad_flat(parts: Sequence[np.ndarray], size: int, fill: int) -> np.ndarray:
    """The parts one after another, int64, filled up to [size]."""
    flat = np.full(size, fill, dtype=np.int64)
    np.concatenate(parts, out=flat[: sum(map(len, parts))])
    return flat
