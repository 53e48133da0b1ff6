"""An index of one vector per text: exact search in all blocks, or search by faiss (approximate.py).

blocks/NNNNNN.npy, rows.npy   see encode_blocks.py
approximate-KIND.faiss        optional: see approximate.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trainer.ranking.indexes import approximate
from trainer.ranking.indexes.blocks import Blocks, TextDocuments, open_blocks
from trainer.ranking.indexes.encode_blocks import OneVector, Storage
from trainer.ranking.indexes.folder import Folder
from trainer.ranking.indexes.index import Index
from trainer.ranking.ranker import Ranker
from trainer.ranking.rankers.dense import Dense
from trainer.ranking.retrieval.search import Ranked, search
from trainer.ranking.retrieval.shared import NOTHING, each_its_queries, wait_for


@dataclass(frozen=True)
class DenseIndex(Index):
    """An opened index of one vector per text."""

    ranker: Dense
    vectors: Blocks
    documents: TextDocuments
    faiss: dict[str, Any] = field(default_factory=dict)  # loaded approximate indexes, by kind

    STORAGE: ClassVar[Storage] = OneVector(32_768, "float32")  # a block: some 100 MB at a width of 768
    DTYPES: ClassVar[tuple[str, ...]] = ("float32", "float16")
    APPROXIMATIONS: ClassVar[tuple[str, ...]] = tuple(approximate.KINDS)

    @classmethod
    def open(cls, folder: Folder, ranker: Ranker) -> DenseIndex:
        """Open an index."""
        assert isinstance(ranker, Dense)
        vectors, documents = open_blocks(folder)
        if len(vectors) != folder.manifest["texts"]:
            raise folder.damaged("its number of vectors")
        return cls(folder, ranker, vectors, documents)

    def __str__(self) -> str:
        """Describe what the index holds."""
        documents, texts = len(self.documents.rows), len(self.vectors)
        width, dtype = self.vectors.width, self.vectors.dtype
        return f"{documents:,} documents of {texts:,} different texts, {width} x {dtype} each"

    def prepare(self, approximation: str, rank: int = 0, ranks: int = 1) -> None:
        """Make faiss's index on rank 0."""
        file = approximate.file_of(self.folder.directory, approximation)
        if rank == 0 and not file.is_file():
            approximate.make(approximation, self.vectors, file)
        wait_for(ranks)

    def require(self, approximation: str) -> None:
        """Load faiss's index."""
        if approximation not in self.faiss:
            file = approximate.file_of(self.folder.directory, approximation)
            self.faiss[approximation] = approximate.load(file, self.vectors)

    def search(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        """Find the k best documents for each query text."""
        vectors = self.ranker.queries.embeddings(self.collection.tokenizer.encode(list(queries)))
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
        """Find the k best documents for each query vector, fp32 [Q, H]; `salts`, of exact search, as in `search`."""
        self.folder.check_width(queries.shape[1], self.vectors.width)
        if approximation:
            self.require(approximation)

            def find(part: slice) -> list[Ranked]:
                return approximate.search(self.faiss[approximation], queries[part], self.vectors, k)

            found = each_its_queries(find, len(queries), rank, ranks)  # a faiss index is not sharded
        else:
            share = self.vectors.share(rank, ranks)
            if not len(share):
                return [NOTHING] * len(queries)
            device = self.ranker.accelerator
            exact = search(queries, share, k, salts=salts, device=device).each()  # type: ignore[arg-type]  # slices
            found = [Ranked(share.numbers(texts), scores) for texts, scores in exact]
        return [self.documents.of(texts, k) for texts in found]
