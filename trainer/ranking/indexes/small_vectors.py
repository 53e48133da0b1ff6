"""A byte or a bit for each number of a vector, to search first: what is found is scored by the fp16 vectors.

codes/NNNNNN.npy   int8 [S, H]: where a number lies in the range of its dimension, in 255 steps; or, binary,
                   uint64 [S, ceil(H / 64)]: a bit for each number, whether it is above 0, and 0 after the last
ranges.npy         of int8, fp32 [2, H]: the least and the largest number of each dimension in a sample of the texts

Both are made of the finished blocks, fp16, so no number of ranks changes them. With the same ranges the codes are those
of sentence-transformers' `quantize_embeddings`, but a query is compared as it is with int8, where that one makes a code
of it, too; bits are compared by their Hamming distance, as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from deepsiam.data_prep.collections.flat_arrays import map_array
from deepsiam.data_prep.common.files import make_directory, save_array
from deepsiam.data_prep.common.progress import meter
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.ranking.indexes.blocks import Blocks, map_blocks
from deepsiam.trainer.ranking.indexes.folder import REBUILD, IndexFolder
from deepsiam.trainer.ranking.indexes.writer import OneVector
from deepsiam.trainer.ranking.retrieval.search import CORPUS_BLOCK, BestPositive, Ranked, rescored, search
from deepsiam.trainer.ranking.retrieval.shared import wait_for

CODES = {"int8": "int8", "binary": "uint64"}  # the numbers of the codes, by dtype of the index
RANGES = "ranges.npy"
SAMPLE = 20_000  # texts that the ranges are computed from
STEPS = 255
WORD = 64  # bits
RESCORED = 4  # texts that are scored by their fp16 vectors, for each that is wanted


def ranges_of(vectors: np.ndarray) -> np.ndarray:
    """Return the least and the largest number of each dimension of vectors [n, H], fp32 [2, H]."""
    return np.stack([vectors.min(axis=0), vectors.max(axis=0)]).astype(np.float32)


def steps_of(ranges: np.ndarray) -> np.ndarray:
    """Return the size of a step in each dimension, fp32 [H]; 1 where all numbers are the same."""
    steps = (ranges[1] - ranges[0]) / STEPS
    return np.where(steps == 0, np.float32(1), steps)


def bytes_of(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return a byte for each number of vectors [n, H], int8 [n, H]; what is out of the ranges gets their ends."""
    steps = np.floor((vectors.astype(np.float32) - ranges[0]) / steps_of(ranges))
    return (steps.clip(0, STEPS) - 128).astype(np.int8)


def bits_of(vectors: np.ndarray) -> np.ndarray:
    """Return a bit for each number of vectors [n, H], uint64 [n, ceil(H / 64)]."""
    bits = np.zeros((len(vectors), math.ceil(vectors.shape[1] / WORD) * WORD), bool)
    bits[:, : vectors.shape[1]] = vectors > 0
    return np.packbits(bits, axis=1).view(np.uint64)


def _count_bits(words: np.ndarray) -> np.ndarray:
    bit_counts = np.array([byte.bit_count() for byte in range(256)], np.uint8)
    return bit_counts[words[..., None].view(np.uint8)].sum(axis=-1, dtype=np.uint8)


# the bits of each word of uint64 [..., n]; numpy has the function from version 2 on
count_bits: Callable[[np.ndarray], np.ndarray] = getattr(np, "bitwise_count", _count_bits)


class CodedVector(OneVector):
    """Writes a vector for each text in fp16, its code, and of int8 the ranges."""

    def stored(self, encoded_text: np.ndarray) -> np.ndarray:
        return encoded_text.astype("float16")

    def derive(self) -> None:
        file = self.directory / RANGES
        make_directory(self.directory / "codes")
        arrays = [map_array(self.directory / "blocks" / name, ["float16"], 2, remedy=REBUILD) for name in self.names]
        if self.dtype == "int8" and self.rank == 0 and not file.is_file():
            texts = sum(map(len, arrays))
            sample = np.sort(keyed_rng("ranges").choice(texts, min(texts, SAMPLE), replace=False))
            save_array(file, ranges_of(Blocks(arrays)[sample]))
        wait_for(self.ranks)
        ranges = np.load(file, allow_pickle=False) if self.dtype == "int8" else None
        for name, vectors in list(zip(self.names, arrays, strict=True))[self.rank :: self.ranks]:
            if not (self.directory / "codes" / name).is_file():
                codes = bits_of(vectors) if ranges is None else bytes_of(vectors, ranges)
                save_array(self.directory / "codes" / name, codes)

    def sidecars(self) -> list[Path]:
        codes = [self.directory / "codes" / name for name in self.names]
        return [self.directory / RANGES, *codes] if self.dtype == "int8" else codes


@dataclass(frozen=True)
class IndexCodes:
    """The codes of an index's texts."""

    codes: Blocks
    ranges: np.ndarray | None  # of int8

    @property
    def bytes(self) -> int:
        """The size of all codes."""
        return sum(array.nbytes for array in self.codes.arrays)

    def search(self, queries: np.ndarray, vectors: Blocks, k: int, device: torch.device | None = None) -> list[Ranked]:
        """Find `RESCORED` * k texts for each query fp32 [Q, H] by their codes, and rank the k best by their vectors.

        Ties are in the order of the texts, among codes and among scores. The memory needed is a block of codes, their
        scores, and the texts found for each query. On a `device` int8 is compared there.
        """
        depth = min(len(self.codes), RESCORED * k)
        if self.ranges is None:
            candidates = nearest_bits(bits_of(queries), self.codes, depth)
        else:  # the start of a range adds the same to all scores of a query
            candidates = search(queries * steps_of(self.ranges), self.codes, depth, device=device).each()  # type: ignore[arg-type]
        return [
            rescored(query, vectors, np.sort(texts.documents), k)
            for query, texts in zip(queries, candidates, strict=True)
        ]


def nearest_bits(queries: np.ndarray, codes: Blocks, k: int) -> list[Ranked]:
    """Find the k codes with the fewest bits that differ from a query's, uint64 [Q, W].

    A score is 1 + how many are the same.
    """
    top_k = BestPositive(len(queries), k)
    highest = queries.shape[1] * WORD + 1
    with meter("search", "codes", len(codes)) as report:
        for start in range(0, len(codes), CORPUS_BLOCK):
            block = np.ascontiguousarray(codes[start : start + CORPUS_BLOCK].T)  # so that a sum is over rows
            for number, query in enumerate(queries):
                distances = count_bits(block ^ query[:, None]).sum(axis=0, dtype=np.uint16)
                nearer = np.flatnonzero(distances < highest - top_k.least[number])  # a tie is after those found before
                top_k.add(number, nearer + start, (highest - distances[nearer]).astype(np.float32))
            report(start + block.shape[1], "")
    return top_k.ranked()


def open_codes(folder: IndexFolder, vectors: Blocks) -> IndexCodes:
    """Open the codes of an index, given its vectors; raise InputError where they are damaged."""
    dtype = folder.manifest["dtype"]
    arrays = map_blocks(folder, "codes", [CODES[dtype]], 2)
    width = vectors.width if dtype == "int8" else math.ceil(vectors.width / WORD)
    if [array.shape for array in arrays] != [(len(array), width) for array in vectors.arrays]:
        raise folder.damaged("its codes are not those of its vectors")
    if dtype == "binary":
        return IndexCodes(Blocks(arrays), None)
    folder.verify(RANGES)
    ranges = np.array(folder.array(RANGES, [np.float32], 2))
    if ranges.shape != (2, vectors.width):
        raise folder.damaged(f"{RANGES}: not the ranges of its vectors")
    return IndexCodes(Blocks(arrays), ranges)
