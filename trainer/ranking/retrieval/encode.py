"""Encode texts into vectors, one or several for each, in batches of similar lengths."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import meter
from deepsiam.models.arrays import on_device
from deepsiam.models.batching.framing import Framing
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.retrieval.shared import compute_my_batches

# enough to fill a GPU; on a CPU, few enough that the feed-forward layers' output, 12 KB a token of BERT-base, is not
# newly allocated for every layer: from 32 MB on, malloc takes fresh pages, which cost more than the GELU
BATCH_TOKENS = defaultdict(lambda: 65536, cpu=2048)


def batch_tokens(device: torch.device | str) -> int:
    """Return the most tokens of a batch on a device."""
    return BATCH_TOKENS[torch.device(device).type]


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

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return some rows, by their places int64 [n]."""


class TextVectors(NamedTuple):
    """The vectors of N texts, of which U are distinct; the vectors of equal texts are held once.

    `TextEncoder.vectors` numbers the distinct texts in the order in which it encodes them, the longest first, so
    neighbours have similar numbers of vectors.
    """

    flat: Rows  # fp32 or fp16 [S, H]; padding is left out; of a sparse model, its terms (sparse.py), [S]
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
        rows = self.joined(numbers)
        vectors = np.zeros((*mask.shape, rows.shape[1]), rows.dtype)
        vectors[mask] = rows
        return Vectors(torch.from_numpy(vectors).to(device).to(dtype), torch.from_numpy(mask).to(device))

    def joined(self, numbers: np.ndarray) -> np.ndarray:
        """Return the vectors of some distinct texts, one text after the other, given their numbers int64 [n]."""
        counts = self.counts(numbers)
        offsets = counts.cumsum() - counts
        return self.flat[np.arange(counts.sum()) + np.repeat(self._starts(numbers) - offsets, counts)]

    def of(self, number: int) -> np.ndarray:
        """Return the vectors of a distinct text, [m, H]."""
        return self.joined(np.array([number]))

    def _starts(self, numbers: np.ndarray) -> np.ndarray:
        return np.where(numbers > 0, self.ends[numbers - 1], 0)


def without_padding(encoded: Vectors) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of n texts, fp32 [S, H], and how many each text has, int64 [n]."""
    mask = encoded.mask.cpu().numpy()
    return encoded.vectors.float().cpu().numpy()[mask], mask.sum(axis=1)


@dataclass(frozen=True)
class TextEncoder:
    """How the texts of one side of a model become vectors.

    Attributes:
        embed: `embed_queries` or `embed_documents` of a model on `device`, in eval mode.
        framing: makes the arguments of `embed`.
        device: where the model is.
        work: names the work in the progress line.
        stored: turns the vectors of n texts into what is stored of them, text after text, and how much that is of each.
    """

    embed: Callable[..., Vectors]
    framing: Framing
    device: torch.device | str = "cpu"
    work: str = "encode"
    stored: Callable[[Vectors], tuple[np.ndarray, np.ndarray]] = without_padding

    def embeddings(self, texts: Iterable[np.ndarray], *, metered: bool = True) -> np.ndarray:
        """Compute the embedding of each text, fp32 [N, H], by a model of one vector per text; see `vectors`.

        Without `metered`, the caller shows the progress.
        """
        text_numbers, distinct_texts = self._distinct(texts)
        vectors: np.ndarray | None = None
        for batch, batch_vectors, _ in self._metered(distinct_texts) if metered else self.batches(distinct_texts):
            if len(batch_vectors) != len(batch):
                raise ValueError(f"{len(batch)} texts have {len(batch_vectors)} vectors, not one each")
            if vectors is None:
                vectors = np.empty((len(distinct_texts), *batch_vectors.shape[1:]), batch_vectors.dtype)
            vectors[batch] = batch_vectors
        assert vectors is not None
        require_finite(vectors, self.work)
        return (
            vectors if len(distinct_texts) == len(text_numbers) else vectors[text_numbers]
        )  # no copy of millions without need

    def vectors(self, texts: Iterable[np.ndarray]) -> TextVectors:
        """Compute the vectors of each text.

        Texts that are equal after truncation are encoded once: in two batches their embeddings could differ in the last
        bits, and their scores would not tie.

        Args:
            texts: token ids without special tokens, at least one text.

        Raises:
            InputError: an embedding is not finite.
        """
        text_numbers, distinct_texts = self._distinct(texts)
        order: list[int] = []
        parts, counts = [], []
        for batch, batch_vectors, batch_counts in self._metered(distinct_texts):
            order += batch
            parts.append(batch_vectors)
            counts.append(batch_counts)
        flat = _joined(parts)
        require_finite(flat, self.work)
        return TextVectors(flat, np.concatenate(counts).cumsum(), places(order)[text_numbers])

    def _distinct(self, texts: Iterable[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Truncate texts; return which of the distinct ones each is, int64 [N], and the distinct ones."""
        token_ids = list(map(self.framing.cut, texts))
        text_numbers, first_places = distinct(token_ids)
        return text_numbers, [token_ids[i] for i in first_places]

    def _metered(self, texts: Sequence[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
        """Yield `batches`, and show how many texts are encoded."""
        progress = 0
        with meter(self.work, "texts", len(texts)) as report:
            for batch, batch_vectors, batch_counts in self.batches(texts):
                yield batch, batch_vectors, batch_counts
                progress += len(batch)
                report(progress, "")

    def batches(self, texts: Sequence[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
        """Yield batches of texts of similar lengths: their numbers, and what `stored` returns for them.

        A batch has at most BATCH_TOKENS of the device, padding included, unless one text is longer.
        """
        # a framing may pad all texts to one length, as ColBERT's queries; `pad` adds at most 7 to an empty text's row
        min_tokens = self.framing.arrays([texts[0][:0]])["ids"].size - 7

        def encoded(batch: list[int]) -> tuple[np.ndarray, np.ndarray]:
            arrays = self.framing.arrays([texts[i] for i in batch])
            with torch.no_grad():  # a model that is being trained must keep no inference tensors
                return self.stored(self.embed(**on_device(arrays, self.device)))

        around = self.framing.max_tokens - self.framing.room
        numbers = length_batches([max(len(text) + around, min_tokens) for text in texts], batch_tokens(self.device))
        for batch, (batch_vectors, counts) in compute_my_batches(numbers, encoded):
            yield batch, batch_vectors, counts


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate arrays, and empty the list: each is freed once it is copied, so that they are not held twice."""
    array = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    end = len(array)
    while parts:
        part = parts.pop()
        array[end - len(part) : end] = part
        end -= len(part)
    return array


def distinct(texts: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct texts in the order of their first places, by hashes of their token ids.

    Returns:
        Each text's number, int64 [N], and the place of the first text of each number, int64 [U].
    """
    digests = bytearray()
    for text in texts:
        digests += hashlib.blake2b(text.astype(np.uint32).tobytes(), digest_size=16).digest()
    keys = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    _, first_places, numbers = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first_places)
    return places(order)[numbers.reshape(-1)], first_places[order]


def places(order: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return where each number stands in a permutation, int64 [n]."""
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    return at


def require_finite(vectors: np.ndarray, work: str) -> None:
    """Raise InputError, which names the work, where a number is infinite or NaN."""
    numbers = vectors["weight"] if vectors.dtype.names else vectors  # of terms
    if not np.isfinite(numbers).all():
        raise InputError(f"{work}: the model's embeddings are not finite: take an earlier checkpoint")
