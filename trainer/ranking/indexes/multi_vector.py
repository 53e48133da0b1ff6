"""An index of several vectors per text, as in ColBERT: score all documents, or candidates only (centroids.py).

blocks/NNNNNN.npy, ends/NNNNNN.npy, rows.npy   see encode_blocks.py
centroids/                                     optional: see centroids.py

Vectors are stored in half precision by default: a stored vector differs from the model's by at most 2^-11 of its
length. So the score of a query of m vectors of length 1 differs by at most m * 2^-11. Or in a few bits: residual.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from deepsiam.data_prep.common.progress import meter, track
from deepsiam.trainer.ranking.indexes import blocks, centroids, residual
from deepsiam.trainer.ranking.indexes.blocks import Blocks, TextDocuments, open_blocks, open_ends
from deepsiam.trainer.ranking.indexes.encode_blocks import SeveralVectors, Storage, encode_blocks
from deepsiam.trainer.ranking.indexes.folder import Folder
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.indexes.residual import Residuals, ResidualVectors
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.multi_vector import MultiVector
from deepsiam.trainer.ranking.retrieval.encode import TextVectors
from deepsiam.trainer.ranking.retrieval.search import Ranked, best, merged, packed
from deepsiam.trainer.ranking.retrieval.shared import NOTHING, rank_0_first
from deepsiam.trainer.ranking.retrieval.system import Scored


@dataclass(frozen=True)
class MultiVectorIndex(Index):
    """An opened index of several vectors per text."""

    ranker: MultiVector
    vectors: Blocks | Residuals
    documents: TextDocuments
    bounds: np.ndarray  # int64 [blocks + 1], the number of each block's first text
    ends: np.ndarray  # int64 [texts], where the vectors of each text end

    STORAGE: ClassVar[Storage] = SeveralVectors(4096, "float16")  # a block: some 100 MiB
    DTYPES: ClassVar[tuple[str, ...]] = ("float16", "float32", *residual.BITS)
    APPROXIMATIONS: ClassVar[tuple[str, ...]] = (centroids.NAME,)

    @classmethod
    def write(cls, ranker: Ranker, directory: Path, rank: int, ranks: int, dtype: str) -> None:
        """Make or resume the folder of an index, unless it is complete."""
        assert isinstance(ranker, MultiVector)
        storage = replace(cls.STORAGE, dtype=dtype)
        if dtype in residual.BITS:
            with rank_0_first(rank, ranks):
                residual.require_unit(ranker, dtype)
            storage = ResidualVectors(storage.block, dtype)
        encode_blocks(storage, ranker, directory, rank, ranks)

    @classmethod
    def open(cls, folder: Folder, ranker: Ranker) -> MultiVectorIndex:
        """Open an index."""
        assert isinstance(ranker, MultiVector)
        compressed = folder.manifest.get("dtype") in residual.BITS
        rows, documents = open_blocks(folder, ["uint8"] if compressed else blocks.DTYPES)
        ends, bounds = open_ends(folder, rows)
        vectors = residual.open_residuals(folder, rows) if compressed else rows
        return cls(folder, ranker, vectors, documents, bounds, ends)

    def __str__(self) -> str:
        """Describe what the index holds."""
        return f"{len(self.documents.rows):,} documents of {len(self.ends):,} different texts, {self.vectors}"

    def prepare(self, approximation: str, rank: int = 0, ranks: int = 1) -> None:
        """Make the centroids on rank 0, and the lists of each rank's blocks, unless they exist."""
        super().require(approximation)
        counts = [np.diff(self.ends[a:b], prepend=self.ends[a - 1] if a else 0) for a, b in self._blocks()]
        centroids.prepare(self.folder, self.vectors, counts, rank, ranks)

    def require(self, approximation: str) -> None:
        """Open the centroids and the lists."""
        super().require(approximation)
        _ = self._centroids

    def search(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        """Find the k best documents for each query text, by the model's own score.

        Scores are computed in fp64 and rounded to fp32, so that they do not depend on what is scored together.
        """
        encoded = self.ranker.queries.vectors(self.collection.tokenizer.encode(list(queries)))
        self.folder.check_width(encoded.of(0).shape[1], self.vectors.width)
        documents = TextVectors(self.vectors, self.ends, np.asarray(self.documents.rows))
        scored = Scored(self.ranker.model.score, encoded, documents, self.ranker.device, torch.float64)
        texts = self._near(scored, k, rank, ranks) if approximation else self._all(scored, k, rank, ranks)
        return [self.documents.of(of_query, k) for of_query in texts]

    @cached_property
    def _centroids(self) -> tuple[np.ndarray, list[np.ndarray]]:
        return centroids.load(self.folder, self.vectors.width, np.diff(self.bounds).tolist())

    def _blocks(self) -> list[tuple[int, int]]:
        """The number of each block's first text, and of the text after its last."""
        return list(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True))

    def _all(self, scored: Scored, k: int, rank: int, ranks: int) -> list[Ranked]:
        """Score all texts of this rank's blocks, and return the best."""
        own, done = self._blocks()[rank::ranks], 0
        rows = scored.queries.rows
        found = [NOTHING] * len(rows)
        with meter("search", "texts", sum(end - start for start, end in own)) as report:
            for start, end in own:
                of_block = [
                    Ranked(texts + start, scores)
                    for texts, scores in best(_scores(scored, rows, np.arange(start, end)), k).each()
                ]
                found = merged(np.concatenate([packed(found, k), packed(of_block, k)], axis=1), k)
                report(done := done + end - start, "")
        return found

    def _near(self, scored: Scored, k: int, rank: int, ranks: int) -> list[Ranked]:
        """Score those texts of this rank's blocks that have a vector near one of the query's, and return the best."""
        of_centroids, lists = self._centroids
        found = []
        for number in track(scored.queries.rows.tolist(), "search", "queries"):
            nearest = centroids.nearest_of_query(scored.queries.of(number), of_centroids)
            own = zip(lists[rank::ranks], self.bounds[:-1][rank::ranks].tolist(), strict=True)
            texts = np.concatenate(
                [np.empty(0, np.int64), *(centroids.texts_of(nearest, of_block) + first for of_block, first in own)]
            )
            if len(texts):
                ((places, scores),) = best(_scores(scored, np.array([number]), texts), k).each()
                found.append(Ranked(texts[places], scores))
            else:
                found.append(NOTHING)
        return found


def _scores(scored: Scored, queries: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return the scores fp32 [q, n] of texts; score them in the order of their lengths, to need little padding."""
    order = np.argsort(-scored.documents.counts(texts), kind="stable")
    scores = np.empty((len(queries), len(texts)), np.float32)
    scores[:, order] = scored.table(queries, texts[order])
    return scores
