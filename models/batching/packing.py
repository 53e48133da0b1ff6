"""Pack sentences into blocks of at most `max_tokens`, order examples, frame texts, and pad rows to a rectangle."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import numpy as np

from deepsiam.models.interface import Vocabulary, required

Packing = Literal["complete", "complete_doc"]
Item = TypeVar("Item")


def pack(
    texts: Iterable[Sequence[np.ndarray]], max_tokens: int, packing: Packing, vocabulary: Vocabulary
) -> list[np.ndarray]:
    """Pack whole sentences, in order, into blocks `[CLS] s1 [SEP] s2 [SEP] ...`.

    With `complete` a block continues into the next document, with `complete_doc` each document starts a new block
    (fairseq's names, which the SEED authors' code uses). Empty sentences are dropped. A sentence too long for any
    block is cut into pieces of max_tokens - 2; the authors' code makes it an oversize block. The last block (with
    `complete_doc`, the last block of each document) is kept however short it is: a document of one token is a block.

    Args:
        texts: the sentences of each document, token ids without special tokens.
        max_tokens: the longest block, special tokens included; at least 3.
        packing: `complete` or `complete_doc`.
        vocabulary: gives [CLS], if it has one, and [SEP].

    Returns:
        One int64 array of ids per block.
    """
    if packing == "complete":
        texts = [[sentence for sentences in texts for sentence in sentences]]
    return [block for sentences in texts for block in _blocks(sentences, max_tokens, vocabulary)]


def _blocks(sentences: Sequence[np.ndarray], max_tokens: int, vocabulary: Vocabulary) -> Iterator[np.ndarray]:
    """Fill blocks greedily; the loop is over blocks, because one over sentences would take most of the time."""
    room = max_tokens - 2  # beside [CLS] and [SEP]
    lengths = [len(sentence) for sentence in sentences if len(sentence)]
    if not lengths:
        return
    if max(lengths) > room:  # cut long sentences: only their ends matter below, the ids stay in order
        lengths = [min(room, length - start) for length in lengths for start in range(0, length, room)]
    ends = np.cumsum(lengths)
    ids = np.insert(np.concatenate(sentences, dtype=np.int64), ends, required(vocabulary, "sep"))
    ends += np.arange(1, len(ends) + 1)  # ends of the sentences with their [SEP]
    cls = np.array([] if vocabulary.cls is None else [vocabulary.cls], np.int64)
    start = 0
    while start < len(ids):  # to the last end of a sentence that leaves a slot for [CLS]
        end = int(ends[ends.searchsorted(start + max_tokens - 1, side="right") - 1])
        yield np.concatenate([cls, ids[start:end]])
        start = end


def spread(examples: Sequence[Item]) -> list[Item]:
    """Reorder a window's examples, always in the same way, so that examples of one document are far apart.

    Next to each other they would share a micro-batch, whose gradient would come from a single book.
    """
    # a fixed seed: the lanes have shuffled the documents already, and examples() has no generator
    return [examples[i] for i in np.random.default_rng(0).permutation(len(examples))]


def frame(tokens: np.ndarray, vocabulary: Vocabulary, max_tokens: int | None = None) -> np.ndarray:
    """Return a text as its tokenizer frames it, such as `[CLS] tokens [SEP]`, int64, truncated to `max_tokens`."""
    prefix, suffix = vocabulary.text_frame
    text = tokens if max_tokens is None else tokens[: max_tokens - len(prefix) - len(suffix)]
    return joined((prefix, text, suffix), vocabulary)


def joined(parts: Sequence[tuple[int, ...] | np.ndarray], vocabulary: Vocabulary) -> np.ndarray:
    """Concatenate ids as int64; without any, the input is [PAD] alone, since a model reads at least one token."""
    ids = np.empty(sum(map(len, parts)), dtype=np.int64)
    start = 0
    for part in parts:
        if isinstance(part, tuple):  # a frame: one token after another is faster than a slice
            for at, token in enumerate(part, start):
                ids[at] = token
        else:
            ids[start : start + len(part)] = part
        start += len(part)
    return ids if len(ids) else np.array([vocabulary.pad])


def text_tokens(rows: Iterable[np.ndarray], vocabulary: Vocabulary) -> int:
    """Count the ids of text in the rows, of any shape: no padding, frame, [MASK] or added tokens."""
    around = [token for part in (*vocabulary.text_frame, *vocabulary.pair_frame) for token in part]
    special = {vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask, *around} - {None}
    return sum(int(_is_text(ids, special, vocabulary.vocab_size).sum()) for ids in rows)


def _is_text(ids: np.ndarray, special: Iterable[int | None], vocab_size: int) -> np.ndarray:
    is_text = ids < vocab_size
    for token in special:
        is_text &= ids != token
    return is_text


def pad(rows: Sequence[np.ndarray], max_tokens: int, fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Right-pad rows of ids to the longest, rounded up to a multiple of 8 but not above `max_tokens`.

    Matrix units are fastest with multiples of 8, and few widths mean few kernel shapes. Always padding to `max_tokens`
    would waste computation where all rows are short. Return ids int64 and attention_mask bool [B, T], true at a token.
    """
    length = max(len(row) for row in rows)
    width = min(-(-length // 8) * 8, max_tokens)
    ids = np.full((len(rows), width), fill, dtype=np.int64)
    for row, padded in zip(rows, ids, strict=True):
        padded[: len(row)] = row
    lengths = np.array([len(row) for row in rows])
    return ids, np.arange(width) < lengths[:, None]


def pad_flat(parts: Sequence[np.ndarray], size: int, fill: int) -> np.ndarray:
    """Concatenate the parts as int64 and fill up to [size]."""
    flat = np.full(size, fill, dtype=np.int64)
    np.concatenate(parts, out=flat[: sum(map(len, parts))])
    return flat
