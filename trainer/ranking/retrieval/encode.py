"""Encode texts into vectors, one or several for each, in batches of similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from data_prep.common.errors import InputError
from data_prep.common.progress import meter
from models.batching.framing import Framing
from models.vectors import Vectors
from trainer.ranking.retrieval.shared import computed

# enough to fill a GPU; on a CPU, few enough that the feed-forward layers' output, 12 KB a token of BERT-base, is not
# newly allocated for every layer: from 32 MB on, malloc takes fresh pages, which cost more than the GELU
BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}


def length_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group rows of similar lengths: yield the row numbers of each batch, the longest rows first.

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


class Rows(Protocol):
    """An array of vectors, [S, H], or an object that reads like one."""

    def __len__(self) -> int:
        """The number of rows."""

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the numbers."""

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return some rows, by their places int64 [n]."""


class TextVectors(NamedTuple):
    """The vectors of N texts, of which U are distinct; the vectors of equal texts are held once.

    `encode_vectors` numbers the distinct texts in the order in which it encodes them, the longest first, so neighbours
    have similar numbers of vectors.
    """

    flat: Rows  # fp32 or fp16 [S, H]; padding is left out
    ends: np.ndarray  # int64 [U], where the vectors of each distinct text end
    rows: np.ndarray  # int64 [N], which of the distinct texts each text is

    def counts(self, numbers: np.ndarray) -> np.ndarray:
        """Return how many vectors each of some distinct texts has, int64 [n], given the texts' numbers int64 [n]."""
        return self.ends[numbers] - self._starts(numbers)

    def padded(
        self, numbers: np.ndarray, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> Vectors:
        """Return the vectors of some distinct texts, padded with zeros: [n, m, H], given their numbers int64 [n]."""
        counts = self.counts(numbers)
        slots = np.arange(max(1, counts.max()))
        mask = slots < counts[:, None]
        rows = self.flat[(self._starts(numbers)[:, None] + slots)[mask]]
        vectors = np.zeros((*mask.shape, rows.shape[1]), rows.dtype)
        vectors[mask] = rows
        return Vectors(torch.from_numpy(vectors).to(device).to(dtype), torch.from_numpy(mask).to(device))

    def of(self, number: int) -> np.ndarray:
        """Return the vectors of a distinct text, [m, H]."""
        start, end = int(self._starts(np.array(number))), int(self.ends[number])
        return self.flat[np.arange(start, end)]

    def _starts(self, numbers: np.ndarray) -> np.ndarray:
        return np.where(numbers > 0, self.ends[numbers - 1], 0)


def encode_texts(
    embed: Callable[..., Vectors],
    framing: Framing,
    texts: Iterable[np.ndarray],
    *,
    what: str = "encode",
    batch_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> np.ndarray:
    """Compute the embedding of each text, fp32 [N, H], in the order given, by a model with one vector per text.

    The arguments and errors are those of `encode_vectors`.
    """
    flat, ends, rows = encode_vectors(embed, framing, texts, what=what, batch_tokens=batch_tokens, device=device)
    if len(flat) != len(ends):
        raise ValueError(f"{len(ends)} texts have {len(flat)} vectors, not one each")
    return flat[rows]


def encode_vectors(
    embed: Callable[..., Vectors],
    framing: Framing,
    texts: Iterable[np.ndarray],
    *,
    what: str = "encode",
    batch_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> TextVectors:
    """Compute the vectors of each text.

    Texts that are equal after truncation are encoded once: in two batches their embeddings could differ in the last
    bits, and their scores would not tie.

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
    number_of_text = [
        unique.setdefault(np.asarray(framing.cut(text), np.uint32).tobytes(), len(unique)) for text in texts
    ]
    different = [np.frombuffer(key, np.uint32) for key in unique]
    order: list[int] = []
    parts, counts = [], []
    with meter(what, "texts", len(different)) as report:
        for batch, vectors, mask in encode_batches(embed, framing, different, batch_tokens, device):
            parts.append(vectors[mask])
            counts.append(mask.sum(axis=1))
            order += batch
            report(len(order), "")
    flat = np.concatenate(parts)
    require_finite(flat, what)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return TextVectors(flat, np.concatenate(counts).cumsum(), place[number_of_text])


def encode_batches(
    embed: Callable[..., Vectors],
    framing: Framing,
    texts: Sequence[np.ndarray],
    batch_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """Yield batches of texts of similar lengths: their numbers, their vectors fp32 [n, m, H] and mask bool [n, m].

    The arguments are those of `encode_vectors`.
    """
    batch_tokens = batch_tokens or BATCH_TOKENS[torch.device(device).type]
    # a framing may pad all texts to one length, as ColBERT's queries; `pad` adds at most 7 to the row of an empty text
    least = framing.arrays([texts[0][:0]])["ids"].size - 7

    def encoded(batch: list[int]) -> tuple[np.ndarray, np.ndarray]:
        arrays = framing.arrays([texts[i] for i in batch])
        with torch.inference_mode():
            vectors, mask = embed(**{name: torch.from_numpy(array).to(device) for name, array in arrays.items()})
        return vectors.float().cpu().numpy(), mask.cpu().numpy()

    batches = length_batches([max(len(text) + 2, least) for text in texts], batch_tokens)
    for batch, (vectors, mask) in computed(batches, encoded):
        yield batch, vectors, mask


def require_finite(vectors: np.ndarray, what: str) -> None:
    """Raise InputError, which names the work, where a number is infinite or NaN."""
    if not np.isfinite(vectors).all():
        raise InputError(f"{what}: the model's embeddings are not finite: take an earlier checkpoint")
