"""Exact retrieval: texts to embeddings, and embeddings to rankings that no batch or chunk size can change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from data_prep.errors import InputError
from data_prep.progress import track
from models.blocks import pad
from models.task import Vocabulary

TIE_RULE = "equal scores rank in corpus order"
BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}  # what fits the caches of the one and fills the other
QUERY_BLOCK, CORPUS_BLOCK = 256, 32768  # scores held at once: 64 MiB in fp64


class Encoder(Protocol):
    """What encodes texts: models.siamese.Siamese, say."""

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embeddings [B, H] of ids int64 and mask bool [B, T]."""
        ...


class Ranking(NamedTuple):
    """The best documents of each query, best first."""

    documents: np.ndarray  # int64 [Q, k], positions in the corpus
    scores: np.ndarray  # fp32 [Q, k]


def encode_texts(
    model: Encoder,
    texts: Iterable[np.ndarray],
    vocabulary: Vocabulary,
    max_tokens: int,
    *,
    what: str = "encode",
    batch_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> np.ndarray:
    """The embedding of each text, fp32 [N, H], in the order given.

    Texts that are the same after truncation are encoded once: in two batches they would differ in the last bits, and
    a tie would not be a tie.

    Args:
        model: on `device`, in eval mode.
        texts: token ids without special tokens, at least one text.
        vocabulary: gives [CLS], [SEP] and [PAD].
        max_tokens: the longest input, [CLS] and [SEP] included; longer texts lose their end.
        what: names the work in the progress line.
        batch_tokens: the most tokens of a batch, padding included, unless one text is longer; by default what suits
            the device.
        device: where the model is.

    Raises:
        InputError: the model gives numbers that are not finite.
    """
    batch_tokens = batch_tokens or BATCH_TOKENS[torch.device(device).type]
    unique: dict[bytes, int] = {}
    row_of_text = [
        unique.setdefault(np.asarray(text[: max_tokens - 2], np.uint32).tobytes(), len(unique)) for text in texts
    ]
    rows = [np.frombuffer(key, np.uint32) for key in unique]
    lengths = np.array([len(row) + 2 for row in rows])
    order = np.argsort(-lengths, kind="stable")  # like with like; the longest first, so memory runs short at once
    parts = []
    with torch.inference_mode():
        for batch in _batches(track(order, what, "texts"), lengths, batch_tokens):
            framed = [np.concatenate([[vocabulary.cls], rows[i], [vocabulary.sep]], dtype=np.int64) for i in batch]
            ids, mask = (torch.from_numpy(array).to(device) for array in pad(framed, max_tokens, vocabulary.pad))
            parts.append(model.encode(ids, mask).float().cpu().numpy())
    embeddings = np.concatenate(parts)  # in the order encoded
    if not np.isfinite(embeddings).all():
        raise InputError(f"{what}: the model gives embeddings that are not finite: take an earlier checkpoint")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return embeddings[place[row_of_text]]


def _batches(order: Iterable[int], lengths: np.ndarray, batch_tokens: int) -> Iterator[list[int]]:
    """Runs of `order`, each as wide as its first row, that hold at most `batch_tokens`."""
    batch: list[int] = []
    for row in order:
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def search(queries: np.ndarray, corpus: np.ndarray, k: int, *, corpus_block: int = CORPUS_BLOCK) -> Ranking:
    """The k documents of largest inner product with each query: exact, ties by corpus order, in bounded memory.

    Products are summed in fp64 and rounded to fp32. Summed in fp32, two equal documents can differ in the last bit,
    for BLAS adds in another order at the edge of a block.

    Args:
        queries: fp32 [Q, H], Q >= 1.
        corpus: fp32 [N, H], N >= 1; may be memory-mapped.
        k: as many as there are, where the corpus has fewer.
        corpus_block: documents scored at once; the result does not depend on it.
    """
    blocks = []
    rows = iter(track(range(len(queries)), "search", "queries"))
    while taken := list(islice(rows, QUERY_BLOCK)):
        block = queries[taken].astype(np.float64)
        scores = (
            (block @ corpus[at : at + corpus_block].astype(np.float64).T).astype(np.float32)
            for at in range(0, len(corpus), corpus_block)
        )
        blocks.append(best(scores, k))
    return Ranking(*(np.concatenate(part) for part in zip(*blocks, strict=True)))


def best(scores: Iterable[np.ndarray], k: int) -> Ranking:
    """The k best columns of each row, ties to the left, of scores fp32 [Q, n] that come as blocks of columns.

    A score and its column make one integer key, so that all keys differ and the smallest k are the same k however the
    columns are cut.
    """
    start, kept = 0, None
    for block in scores:
        if np.isnan(block).any():
            raise ValueError("a score is NaN")
        columns = np.arange(start, start + block.shape[1], dtype=np.uint64)
        start += block.shape[1]
        bits = (block + np.float32(0)).view(np.uint32)  # adding makes -0.0 the same score as 0.0
        keys = _descending(bits).astype(np.uint64) << np.uint64(32) | columns
        kept = keys if kept is None else np.concatenate([kept, keys], axis=1)
        if kept.shape[1] > k:
            kept = np.partition(kept, k - 1, axis=1)[:, :k]
    if kept is None:
        raise ValueError("no scores")
    kept.sort(axis=1)
    bits = _descending((kept >> np.uint64(32)).astype(np.uint32))
    return Ranking((kept & np.uint64(0xFFFFFFFF)).astype(np.int64), bits.view(np.float32))


def _descending(bits: np.ndarray) -> np.ndarray:
    """The bits of fp32 numbers as uint32 that grow as the numbers fall; applied twice, the bits again."""
    return np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFFFFFF))
