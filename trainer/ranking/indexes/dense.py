"""An index of one vector per text: exact search in all blocks, or by small codes first, or by faiss.

blocks/NNNNNN.npy, rows.npy   see writer.py
codes/, ranges.npy            optional: see small_vectors.py
approximate-KIND.faiss        optional: see approximate.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.ranking.indexes import approximate, blocks
from deepsiam.trainer.ranking.indexes.blocks import Blocks, TextDocuments, open_blocks
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.indexes.small_vectors import CODES, CodedVector, IndexCodes, open_codes
from deepsiam.trainer.ranking.indexes.writer import OneVector
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.dense import DenseRanker
from deepsiam.trainer.ranking.retrieval.search import Ranked, search
from deepsiam.trainer.ranking.retrieval.shared import NOTHING, merge, split_queries_by_rank, wait_for

DEPTHS, QUERIES = (10, 100), 64  # recall: how many of the first documents are compared, for how many queries


@dataclass(frozen=True)
class DenseIndex(Index):
    """An opened index of one vector per text."""

    ranker: DenseRanker
    vectors: Blocks
    documents: TextDocuments
    codes: IndexCodes | None = None  # where texts are searched by these first
    faiss: dict[str, Any] = field(default_factory=dict)  # loaded approximate indexes, by kind
    asking: DenseRanker | None = None  # whose queries these are, if not the ranker's

    WRITERS = {"float32": OneVector, "float16": OneVector, **dict.fromkeys(CODES, CodedVector)}
    APPROXIMATIONS = tuple(approximate.KINDS)

    @classmethod
    def open(cls, folder: IndexFolder, ranker: Ranker) -> DenseIndex:
        assert isinstance(ranker, DenseRanker)
        coded = folder.manifest.get("dtype") in CODES
        vectors, documents = open_blocks(folder, ["float16"] if coded else blocks.DTYPES)
        if len(vectors) != folder.manifest["texts"]:
            raise folder.damaged("its number of vectors")
        return cls(folder, ranker, vectors, documents, open_codes(folder, vectors) if coded else None)

    def asked_by(self, queries: DenseRanker) -> DenseIndex:
        width, index = self.vectors.width, self.folder.directory
        if queries.width != width:
            raise InputError(f"--query-model: {queries.title} has vectors of {queries.width}, and {index} of {width}")
        return replace(self, asking=queries)

    def __str__(self) -> str:
        documents, texts = len(self.documents.rows), len(self.vectors)
        width, dtype = self.vectors.width, self.vectors.dtype
        size = f"{documents:,} documents of {texts:,} different texts, {width} x {dtype} each"
        if self.codes is None:
            return size
        total = sum(array.nbytes for array in self.vectors.arrays)
        dtype = self.folder.manifest["dtype"]
        return f"{size} ({total:,} bytes), searched by {dtype} first ({self.codes.bytes:,} bytes)"

    def measure(self, rank: int = 0, ranks: int = 1) -> str | None:
        """Return which share of exact search's first documents is found with codes, for some queries."""
        numbers = keyed_rng("recall queries").permutation(len(self.collection.queries))[:QUERIES].tolist()
        if self.codes is None or not numbers:
            return None
        queries = self.ranker.queries.embeddings(map(self.collection.queries.tokens, numbers))
        shares = []
        for k in DEPTHS:
            exact, coded = (
                merge(index.search_vectors(queries, k, rank=rank, ranks=ranks), k, rank, ranks) or []
                for index in (replace(self, codes=None), self)
            )
            if rank == 0:
                recalls = [np.isin(a.documents, b.documents).mean() for a, b in zip(exact, coded, strict=True)]
                shares.append(f"{np.mean(recalls):.1%} of exact search's first {k}")
        return f"finds {' and '.join(shares)}, for {len(numbers)} queries of the collection" if rank == 0 else None

    def prepare(self, approximation: str, rank: int = 0, ranks: int = 1) -> None:
        file = approximate.index_file(self.folder.directory, approximation)
        if rank == 0 and not file.is_file():
            approximate.make(approximation, self.vectors, file)
        wait_for(ranks)

    def require(self, approximation: str) -> None:
        if approximation not in self.faiss:
            file = approximate.index_file(self.folder.directory, approximation)
            self.faiss[approximation] = approximate.load(file, self.vectors)

    def search_share(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        ranker = self.asking or self.ranker
        vectors = ranker.queries.embeddings(ranker.loaded.tokenizer.encode(list(queries)))
        return self.search_vectors(vectors, k, approximation, rank, ranks)

    def search_tokens(self, queries: Iterable[np.ndarray], k: int, *, salts: np.ndarray | None = None) -> list[Ranked]:
        """Find the k best documents for each query, given its token ids, by exact search; `salts` as in `search`."""
        return self.search_vectors(self.ranker.queries.embeddings(queries), k, salts=salts)

    def search_vectors(
        self,
        queries: np.ndarray,
        k: int,
        approximation: str | None = None,
        rank: int = 0,
        ranks: int = 1,
        *,
        salts: np.ndarray | None = None,
    ) -> list[Ranked]:
        """Find the k best documents for each query vector, fp32 [Q, H]; with `salts`, as in `search`, exactly."""
        self.folder.check_width(queries.shape[1], self.vectors.width)
        by: Callable[[np.ndarray, Blocks, int], list[Ranked]] | None = None
        if approximation:
            self.require(approximation)
            by = partial(approximate.search, self.faiss[approximation])
        elif self.codes and salts is None:
            by = partial(self.codes.search, device=self.ranker.accelerator)
        if by:  # what it looks at first depends on all texts, so these are not shared out
            ranked = split_queries_by_rank(lambda part: by(queries[part], self.vectors, k), len(queries), rank, ranks)
        else:
            share = self.vectors.share(rank, ranks)
            if not len(share):
                return [NOTHING] * len(queries)
            device = self.ranker.accelerator
            exact = search(queries, share, k, salts=salts, device=device).each()  # type: ignore[arg-type]  # slices
            ranked = [Ranked(share.numbers(texts), scores) for texts, scores in exact]
        return [self.documents.ranked(texts, k) for texts in ranked]
