"""Vectors of length 1 in a few bits: the number of a centroid, and buckets of the rest (Santhanam et al., 2022).

blocks/NNNNNN.npy     uint8 [S, 4 + H * bits / 8]: the centroid's number, int32, and a bucket for each number
codec/centroids.npy   fp32 [C, H], of length 1
codec/cutoffs.npy     fp32 [2^bits - 1]: where the next bucket begins
codec/values.npy      fp32 [2^bits]: what stands for the numbers of a bucket
codec/recall.npy      fp32 [1]: the share of fp16's first texts that is found among the first, in the sample
sample/               while the codec is missing: an index in fp16 of some of the texts

A decoded vector is the centroid plus the values, scaled to length 1 again. The codec depends only on the collection and
the model: all ranks encode the sample, and rank 0 trains.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from deepsiam.data_prep.collections.flat_arrays import map_array
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, save_array
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.ranking.indexes.blocks import Blocks, open_blocks, open_ends
from deepsiam.trainer.ranking.indexes.folder import REBUILD, IndexFolder
from deepsiam.trainer.ranking.indexes.kmeans import TRAINED_ON, nearest, train
from deepsiam.trainer.ranking.indexes.writer import SeveralVectors
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval.encode import TextVectors
from deepsiam.trainer.ranking.retrieval.search import best
from deepsiam.trainer.ranking.retrieval.shared import wait_for
from deepsiam.trainer.ranking.retrieval.system import Scored

BITS = {"residual1": 1, "residual2": 2, "residual4": 4}  # by dtype
FILES = ("codec/centroids.npy", "codec/cutoffs.npy", "codec/values.npy", "codec/recall.npy")
CODE = 4  # bytes of a centroid's number
COUNTED = 64  # texts that are encoded to learn how many vectors a text has
HELD_OUT = 20  # the buckets are fitted to one in this many texts of the sample, but at most POOL
QUERIES, POOL, DEPTH = 32, 1000, 10  # recall: texts as queries, texts to search, the first ones that are compared
AT_ONCE = 2**14  # vectors to encode at once


@dataclass(frozen=True)
class Codec:
    """How vectors of length 1 are stored."""

    centroids: np.ndarray  # fp32 [C, H]
    cutoffs: np.ndarray  # fp32 [2^bits - 1]
    values: np.ndarray  # fp32 [2^bits]

    @property
    def bits(self) -> int:
        """The bits of a bucket."""
        return len(self.values).bit_length() - 1

    @property
    def row(self) -> int:
        """The bytes of a stored vector."""
        return CODE + math.ceil(self.centroids.shape[1] * self.bits / 8)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors [n, H] as they are stored, uint8 [n, row]."""
        rows = np.empty((len(vectors), self.row), np.uint8)
        for start in range(0, len(vectors), AT_ONCE):
            part = vectors[start : start + AT_ONCE].astype(np.float32)
            codes = nearest(part, self.centroids)
            part -= self.centroids[codes]
            buckets = np.zeros(part.shape, np.uint8)
            for cutoff in self.cutoffs:  # several times as fast as np.searchsorted
                buckets += part > cutoff
            rows[start : start + AT_ONCE, :CODE] = codes.astype("<i4")[:, None].view(np.uint8)
            rows[start : start + AT_ONCE, CODE:] = pack(buckets, self.bits)
        return rows

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """Return stored vectors, fp32 [n, H]."""
        bucket_values = np.take(self._values_of_bytes, rows[:, CODE:], axis=0).reshape(len(rows), -1)
        vectors = self.centroids[codes_of(rows)]
        vectors += bucket_values[:, : vectors.shape[1]]
        return unit(vectors)

    @cached_property
    def _values_of_bytes(self) -> np.ndarray:
        buckets = np.arange(256)[:, None] >> _shifts(self.bits) & (len(self.values) - 1)
        return self.values[buckets]  # those that each byte holds, fp32 [256, 8 / bits]


def pack(buckets: np.ndarray, bits: int) -> np.ndarray:
    """Write buckets uint8 [n, H] into bytes, uint8 [n, H * bits / 8]: the first into the lowest bits of a byte."""
    in_a_byte = 8 // bits
    packed = np.zeros((len(buckets), math.ceil(buckets.shape[1] / in_a_byte)), np.uint8)
    for i, shift in enumerate(_shifts(bits)):
        byte_buckets = buckets[:, i::in_a_byte]
        packed[:, : byte_buckets.shape[1]] |= byte_buckets << shift
    return packed


def _shifts(bits: int) -> np.ndarray:
    return np.arange(0, 8, bits, dtype=np.uint8)


def codes_of(rows: np.ndarray) -> np.ndarray:
    """Return the number of each stored vector's centroid, int32 [n]."""
    return np.ascontiguousarray(rows[:, :CODE]).view("<i4")[:, 0]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return vectors fp32 [n, H] scaled to length 1."""
    lengths = np.sqrt(np.einsum("nh,nh->n", vectors, vectors))
    scaled: np.ndarray = vectors / np.maximum(lengths, np.float32(1e-12))[:, None]
    return scaled


def fit(vectors: np.ndarray, held_out: np.ndarray, number: int, bits: int) -> Codec:
    """Train a codec: centroids of vectors fp32 [n, H], and buckets of other vectors fp32 [m, H].

    There are fewer centroids than `number` where each would have fewer than four vectors.
    """
    number = min(number, 2 ** int(math.log2(max(1, len(vectors) // 4))))
    return with_buckets(unit(train(vectors, number, keyed_rng("codec"))), held_out, bits)


def with_buckets(centroids: np.ndarray, held_out: np.ndarray, bits: int) -> Codec:
    """Divide the residuals of vectors fp32 [m, H] into buckets of equal shares, over all dimensions together."""
    residuals = held_out - centroids[nearest(held_out, centroids)]
    buckets = 2**bits
    cutoffs, values = (
        np.quantile(residuals, at / buckets).astype(np.float32)
        for at in (np.arange(1, buckets), np.arange(buckets) + 0.5)
    )
    return Codec(centroids, cutoffs, values)


def centroids_for(vectors: float) -> int:
    """Return how many centroids this many vectors should have."""
    return int(2 ** int(math.log2(16 * math.sqrt(max(1, vectors)))))


@dataclass(frozen=True)
class Residuals:
    """The vectors of an index, decoded when they are read."""

    rows: Blocks
    codec: Codec
    recall: float
    folder: IndexFolder

    def __len__(self) -> int:
        """The number of vectors."""
        return len(self.rows)

    def __str__(self) -> str:
        """Describe what is stored."""
        count, width = self.codec.centroids.shape
        return (
            f"{len(self):,} vectors of {width} x {self.codec.bits} bits ({self.codec.row} bytes each), "
            f"{count:,} centroids; finds {self.recall:.1%} of fp16's first {DEPTH} in a sample"
        )

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return int(self.codec.centroids.shape[1])

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """Decode some vectors, fp32 [n, H], by their places int64 [n]; raise InputError where they are damaged."""
        return self.codec.decode(self._checked(self.rows[places]))

    def nearest(self, block: int) -> np.ndarray:
        """Return the number of the centroid nearest to each vector of a block, int32 [n]."""
        return codes_of(self._checked(self.rows.arrays[block]))

    def _checked(self, rows: np.ndarray) -> np.ndarray:
        if (codes_of(rows).view(np.uint32) >= len(self.codec.centroids)).any():
            raise self.folder.damaged("blocks: a vector's centroid is none of the codec's")
        return rows


def open_residuals(folder: IndexFolder, rows: Blocks) -> Residuals:
    """Open the codec of an index, given its stored rows; raise InputError where either is damaged."""
    folder.verify(*FILES)
    codec, recall = _load(folder.directory)
    if codec.bits != BITS[folder.manifest["dtype"]] or codec.row != rows.width:
        raise folder.damaged("its blocks were written with another codec")
    return Residuals(rows, codec, recall, folder)


def _load(directory: Path) -> tuple[Codec, float]:
    centroids, cutoffs, values, recall = (
        np.array(map_array(directory / name, [np.float32], dimensions, remedy=REBUILD))
        for name, dimensions in zip(FILES, (2, 1, 1, 1), strict=True)
    )
    sizes = [(2**bits - 1, 2**bits, 1) for bits in BITS.values()]
    if (len(cutoffs), len(values), len(recall)) not in sizes or not len(centroids) or (np.diff(cutoffs) < 0).any():
        raise InputError(f"{directory / 'codec'}: damaged (its arrays do not belong together); {REBUILD}")
    return Codec(centroids, cutoffs, values), float(recall[0])


def require_unit(ranker: VectorRanker, dtype: str) -> None:
    """Raise InputError for a model whose vectors do not have length 1: the first document shows it."""
    lengths = np.linalg.norm(ranker.documents.vectors([ranker.collection.corpus.tokens(0)]).of(0), axis=1)
    if (abs(lengths - 1) > 0.01).any():
        raise InputError(
            f"--dtype {dtype}: needs vectors of length 1, and those of {ranker.title} have lengths of "
            f"{lengths.min():.3g} to {lengths.max():.3g}: choose float16"
        )


class ResidualVectors(SeveralVectors):
    """Writes several vectors for each text, in a few bits."""

    codec: Codec

    def begin(self) -> bool:
        require_unit(self.ranker, self.dtype)
        return super().begin()

    def stored(self, encoded_text: np.ndarray) -> np.ndarray:
        return encoded_text.astype("float16")

    def arrays(self, encoded_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        ends, vectors = super().arrays(encoded_texts)
        return [ends, self.codec.encode(vectors)]

    def prepare(self) -> None:
        """Train the codec on a sample, unless it exists."""
        sample = self.directory / "sample"
        if not all(file.is_file() for file in self.sidecars()):
            SeveralVectors(self.ranker, sample, "float16", self.rank, self.ranks, self._sample()).write()
            if self.rank == 0:
                folder, texts = IndexFolder.open(sample), len(self.first_documents)
                _train(BITS[self.dtype], self.ranker, folder, texts, self.sidecars())
            wait_for(self.ranks)
        if self.rank == 0:
            shutil.rmtree(sample, ignore_errors=True)
        self.codec, _ = _load(self.directory)

    def sidecars(self) -> list[Path]:
        return [self.directory / name for name in FILES]

    def _sample(self) -> np.ndarray:
        """Draw documents with different texts, int64 [n], with some `TRAINED_ON` vectors for each centroid."""
        order = keyed_rng("codec sample").permutation(self.first_documents)
        counted = self.encoder.vectors(map(self.text, order[:COUNTED].tolist()))
        per_text = max(1.0, len(counted.flat) / len(counted.rows))
        return np.sort(order[: math.ceil(TRAINED_ON * centroids_for(len(order) * per_text) / per_text)])


def _train(bits: int, ranker: VectorRanker, sample: IndexFolder, texts: int, files: list[Path]) -> None:
    """Train a codec for an index of so many texts, from a sample; measure its recall, and write the files."""
    flat, _ = open_blocks(sample)
    ends, _ = open_ends(sample, flat)
    order = keyed_rng("codec texts").permutation(len(ends))
    is_held_out = np.zeros(len(ends), bool)
    is_held_out[order[: min(POOL, len(order) // HELD_OUT)]] = True
    held_out_mask = np.repeat(is_held_out, np.diff(ends, prepend=0))
    vectors = flat[np.flatnonzero(~held_out_mask)].astype(np.float32)
    held_out = flat[np.flatnonzero(held_out_mask)].astype(np.float32) if held_out_mask.any() else vectors
    codec = fit(vectors, held_out, centroids_for(texts * len(flat) / len(ends)), bits)
    recall = _recall(ranker, codec, TextVectors(flat, ends, np.arange(len(ends))), order)
    make_directory(files[0].parent)
    for file, array in zip(files, (codec.centroids, codec.cutoffs, codec.values, recall), strict=True):
        save_array(file, array)


def _recall(ranker: VectorRanker, codec: Codec, sample: TextVectors, order: np.ndarray) -> np.ndarray:
    """Search stored vectors with texts as queries; return the share of fp16's first that is found, fp32 [1]."""
    queries, numbers = order[-QUERIES:], order[:POOL]
    pool = TextVectors(sample.joined(numbers), sample.counts(numbers).cumsum(), np.arange(len(numbers)))
    stored = pool._replace(flat=codec.decode(codec.encode(np.asarray(pool.flat))))
    exact_rankings, decoded_rankings = (
        best(Scored(ranker.model.score, sample, texts, ranker.device, torch.float64).table(queries, pool.rows), DEPTH)
        for texts in (pool, stored)
    )
    shares = [np.isin(*pair).mean() for pair in zip(exact_rankings.documents, decoded_rankings.documents, strict=True)]
    return np.array([np.mean(shares)], np.float32)
