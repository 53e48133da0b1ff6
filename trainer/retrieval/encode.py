"""Texts to embeddings, in batches of similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from data_prep.common.errors import InputError
from data_prep.common.progress import meter
from models.batching.framing import Framing
from models.vectors import Vectors

BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}  # enough to fill a GPU; on a CPU, what fits its caches


def length_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group rows of similar lengths: the numbers of each batch's rows, the longest rows first.

    Args:
        lengths: tokens of each row.
        batch_tokens: the most tokens of a batch, padded to its longest row; a longer row is a batch of its own.
    """
    batch: list[int] = []
    for row in np.argsort(-np.asarray(lengths), kind="stable").tolist():  # the largest batch first: fail early
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def encode_texts(
    embed: Callable[..., Vectors],
    framing: Framing,
    texts: Iterable[np.ndarray],
    *,
    what: str = "encode",
    batch_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> np.ndarray:
    """Compute the embedding of each text, fp32 [N, H], in the order given.

    Texts that are equal as the framing cuts them are encoded once: in two batches their embeddings could differ in the
    last bits, and their scores would not be tied.

    Args:
        embed: `embed_queries` or `embed_documents` of a model on `device`, in eval mode.
        framing: makes the arguments of `embed`.
        texts: token ids without special tokens, at least one text.
        what: names the work in the progress line.
        batch_tokens: the most tokens of a batch, padding included, unless one text is longer; by default
            BATCH_TOKENS of the device.
        device: where the model is.

    Raises:
        InputError: an embedding is not finite.
    """
    unique: dict[bytes, int] = {}
    row_of_text = [unique.setdefault(np.asarray(framing.cut(text), np.uint32).tobytes(), len(unique)) for text in texts]
    rows = [np.frombuffer(key, np.uint32) for key in unique]
    batch_tokens = batch_tokens or BATCH_TOKENS[torch.device(device).type]
    order: list[int] = []
    parts = []
    with torch.inference_mode(), meter(what, "texts", len(rows)) as report:
        for batch in length_batches([len(row) + 2 for row in rows], batch_tokens):
            arrays = framing.arrays([rows[i] for i in batch])
            vectors, _ = embed(**{name: torch.from_numpy(array).to(device) for name, array in arrays.items()})
            parts.append(vectors[:, 0].float().cpu().numpy())
            order += batch
            report(len(order), "")
    embeddings = np.concatenate(parts)  # row i is that of rows[order[i]]
    if not np.isfinite(embeddings).all():
        raise InputError(f"{what}: the model's embeddings are not finite: take an earlier checkpoint")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return embeddings[position[row_of_text]]
