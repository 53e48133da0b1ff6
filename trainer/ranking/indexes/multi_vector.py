"""An index of several vectors per text, as in ColBERT: score all documents, or candidates only (centroids.py).

blocks/NNNNNN.npy, ends/NNNNNN.npy, rows.npy   see writer.py
centroids/                                     optional: see centroids.py

Vectors are stored in half precision by default: a stored vector differs from the model's by at most 2^-11 of its
length. So the score of a query of m vectors of length 1 differs by at most m * 2^-11. Or in a few bits: residual.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from deepsiam.data_prep.common.progress import meter, track
from deepsiam.trainer.ranking.indexes import blocks, centroids, residual
from deepsiam.trainer.ranking.indexes.blocks import Blocks, TextDocuments, open_blocks, open_ends
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.indexes.residual import BITS, Residuals, ResidualVectors
from deepsiam.trainer.ranking.indexes.writer import SeveralVectors
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.multi_vector import MultiVectorRanker
from deepsiam.trainer.ranking.retrieval.encode import TextVectors
from deepsiam.trainer.ranking.retrieval.search import Ranked, best, merged, packed
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import Scored


@dataclass(frozen=True)
class MultiVectorIndex(Index):
    """An opened index of several vectors per text."""

    ranker: MultiVectorRanker
    vectors: Blocks | Residuals
    documents: TextDocuments
    bounds: np.ndarray  # int64 [blocks + 1], the number of each block's first text
    ends: np.ndarray  # int64 [texts], where the vectors of each text end

    WRITERS = {"float16": SeveralVectors, "float32": SeveralVectors, **dict.fromkeys(BITS, ResidualVectors)}
    APPROXIMATIONS = (centroids.NAME,)

    @classmethod
    def open(cls, folder: IndexFolder, ranker: Ranker) -> MultiVectorIndex:
        assert isinstance(ranker, MultiVectorRanker)
        compressed = folder.manifest.get("dtype") in BITS
        rows, documents = open_blocks(folder, ["uint8"] if compressed else blocks.DTYPES)
        ends, bounds = open_ends(folder, rows)
        vectors = residual.open_residuals(folder, rows) if compressed else rows
        return cls(folder, ranker, vectors, documents, bounds, ends)

    def __str__(self) -> str:
        return f"{len(self.documents.rows):,} documents of {len(self.ends):,} different texts, {self.vectors}"

    def prepare(self, approximation: str, rank: int = 0, ranks: int = 1) -> None:
        super().require(approximation)
        counts = [np.diff(self.ends[a:b], prepend=self.ends[a - 1] if a else 0) for a, b in self._blocks()]
        centroids.prepare(self.folder, self.vectors, counts, rank, ranks)

    def require(self, approximation: str) -> None:
        super().require(approximation)
        _ = self._centroids

    def search_share(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        encoded = self.ranker.queries.vectors(self.collection.tokenizer.encode(list(queries)))
        self.folder.check_width(encoded.of(0).shape[1], self.vectors.width)
        documents = TextVectors(self.vectors, self.ends, np.asarray(self.documents.rows))
        # fp64, so that a score does not depend on what is scored with it
        scored = Scored(self.ranker.model.score, encoded, documents, self.ranker.device, torch.float64)
        texts = self._near(scored, k, rank, ranks) if approximation else self._all(scored, k, rank, ranks)
        return [self.documents.ranked(ranking, k) for ranking in texts]

    @cached_property
    def _centroids(self) -> tuple[np.ndarray, list[np.ndarray]]:
        return centroids.load(self.folder, self.vectors.width, np.diff(self.bounds).tolist())

    def _blocks(self) -> list[tuple[int, int]]:
        return list(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True))

    def _all(self, scored: Scored, k: int, rank: int, ranks: int) -> list[Ranked]:
        """Score all texts of this rank's blocks, and return the best."""
        my_blocks, progress = self._blocks()[rank::ranks], 0
        rows = scored.queries.rows
        ranked = [NOTHING] * len(rows)
        with meter("search", "texts", sum(end - start for start, end in my_blocks)) as report:
            for start, end in my_blocks:
                block_rankings = [
                    Ranked(texts + start, scores)
                    for texts, scores in best(_scores(scored, rows, np.arange(start, end)), k).each()
                ]
                ranked = merged(np.concatenate([packed(ranked, k), packed(block_rankings, k)], axis=1), k)
                report(progress := progress + end - start, "")
        return ranked

    def _near(self, scored: Scored, k: int, rank: int, ranks: int) -> list[Ranked]:
        """Score those texts of this rank's blocks that have a vector near one of the query's, and return the best."""
        centroid_vectors, lists = self._centroids
        my_lists = list(zip(lists[rank::ranks], self.bounds[:-1][rank::ranks].tolist(), strict=True))
        ranked = []
        for number in track(scored.queries.rows.tolist(), "search", "queries"):
            query_centroids = centroids.nearest_of_query(scored.queries.of(number), centroid_vectors)
            candidates = (centroids.texts_of(query_centroids, pairs) + start for pairs, start in my_lists)
            texts = np.concatenate([NOTHING.documents, *candidates])
            if len(texts):
                ((places, scores),) = best(_scores(scored, np.array([number]), texts), k).each()
                ranked.append(Ranked(texts[places], scores))
            else:
                ranked.append(NOTHING)
        return ranked


def _scores(scored: Scored, queries: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return the scores fp32 [q, n] of texts; score them in the order of their lengths, to need little padding."""
    order = np.argsort(-scored.documents.counts(texts), kind="stable")
    scores = np.empty((len(queries), len(texts)), np.float32)
    scores[:, order] = scored.table(queries, texts[order])
    return scores
