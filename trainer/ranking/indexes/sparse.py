"""An index of the terms of texts (retrieval/sparse.py): for each term of a block of texts, the texts that have it.

counts/NNNNNN.npy   int32 [texts of the block]: how many terms each text has
terms/NNNNNN.npy    int64 [2, T]: the distinct terms in order, and where the postings of each end
texts/NNNNNN.npy    uint16 [P]: the text of each posting, by its number in the block
blocks/NNNNNN.npy   fp16 or fp32 [P]: the weight of each posting
rows.npy            see writer.py

Weights are stored in half precision by default: a score differs from the model's by at most 2^-11 of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deepsiam.trainer.ranking.indexes.blocks import TextDocuments, map_blocks, open_documents, stored_dtypes
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.index import Index, Terms
from deepsiam.trainer.ranking.indexes.writer import Writer
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.sparse import SparseRanker
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.ranking.retrieval.sparse import BLOCK, Postings, search_postings, term_type, warn_of_empty

SAMPLE = 256  # queries whose terms are counted, for the products that a query takes


class TermWriter(Writer):
    """Writes any number of terms for each text, as postings."""

    BLOCK = BLOCK  # some 30 MB at 200 terms a text
    FOLDERS = ("counts", "terms", "texts", "blocks")

    def stored(self, encoded_text: np.ndarray) -> np.ndarray:
        return encoded_text.astype(term_type(self.dtype))

    def arrays(self, encoded_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        postings = Postings.of(np.concatenate(encoded_texts), np.array(list(map(len, encoded_texts))))
        return [postings.counts, postings.terms, postings.texts, postings.weights]


@dataclass(frozen=True)
class SparseIndex(Index):
    """An opened index of terms."""

    ranker: SparseRanker
    blocks: list[Postings]
    documents: TextDocuments

    WRITERS = {"float16": TermWriter, "float32": TermWriter}

    @classmethod
    def open(cls, folder: IndexFolder, ranker: Ranker) -> SparseIndex:
        assert isinstance(ranker, SparseRanker)
        documents = open_documents(folder)
        arrays = (
            map_blocks(folder, "counts", [np.int32], 1),
            map_blocks(folder, "terms", [np.int64], 2),
            map_blocks(folder, "texts", [np.uint16], 1),
            map_blocks(folder, "blocks", stored_dtypes(folder), 1),
        )
        blocks = [Postings(*block_arrays) for block_arrays in zip(*arrays, strict=True)]
        for name, block in zip(folder.manifest["blocks"], blocks, strict=True):
            if fault := _fault(block, ranker.vocabulary):
                raise folder.damaged(f"block {name}: {fault}")
        if sum(len(block.counts) for block in blocks) != folder.manifest["texts"]:
            raise folder.damaged("its number of texts")
        return cls(folder, ranker, blocks, documents)

    def __str__(self) -> str:
        counts = np.concatenate([block.counts for block in self.blocks])
        text = (
            f"{len(self.documents.rows):,} documents of {len(counts):,} different texts, {counts.mean():,.1f} terms "
            f"each (at most {counts.max():,}), {self.blocks[0].weights.dtype}"
        )
        if len(self.collection.queries):
            query_terms, products = self._cost
            text += f"; queries of {query_terms:,.1f} terms: {products:,.2f} FLOPS (products of a query and a text)"
        return text

    @cached_property
    def _cost(self) -> tuple[float, float]:
        """The mean number of terms of a query, and of those that it shares with a text: of the collection's queries."""
        tokens = self.collection.queries.tokens
        numbers = np.linspace(0, len(self.collection.queries) - 1, SAMPLE).round().astype(int)
        queries = self.ranker.queries.vectors(map(tokens, np.unique(numbers).tolist()))
        shared = [block.products(queries.of(row)) for row in queries.rows.tolist() for block in self.blocks]
        texts = len(queries.rows) * self.folder.manifest["texts"]
        return float(queries.counts(queries.rows).mean()), sum(shared) / texts

    def search_share(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        return self.search_tokens(self.collection.tokenizer.encode(list(queries)), k, rank, ranks)

    def search_tokens(
        self,
        queries: Iterable[np.ndarray],
        k: int,
        rank: int = 0,
        ranks: int = 1,
        *,
        salts: np.ndarray | None = None,
    ) -> list[Ranked]:
        """Find the k best documents for each query, given its token ids; `salts` as in `search`."""
        encoded = self._encoded(queries)
        warn_of_empty(encoded)
        texts = search_postings(encoded, list(self._numbered())[rank::ranks], k, salts)
        return [self.documents.ranked(ranking, k) for ranking in texts]

    def matches(self, queries: Sequence[str], ranking: Sequence[Ranked]) -> list[list[Terms]]:
        names = {number: name for name, number in self.collection.tokenizer.vocabulary().items()}
        starts = np.array([first_text for first_text, _ in self._numbered()])
        terms_of_queries = []
        encoded = self._encoded(self.collection.tokenizer.encode(list(queries)))
        for query, ranked in zip(encoded, ranking, strict=True):
            texts = self.documents.rows[ranked.documents]
            block_numbers = np.searchsorted(starts, texts, side="right") - 1
            matches = [
                self.blocks[block].matches(query, text)
                for block, text in zip(block_numbers.tolist(), (texts - starts[block_numbers]).tolist(), strict=True)
            ]
            terms_of_queries.append(
                [tuple((names.get(term, str(term)), weight) for term, weight in pairs) for pairs in matches]
            )
        return terms_of_queries

    def texts(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each document's number and terms, of `term_type`, the documents of equal texts one after the other."""
        for first_text, block in self._numbered():
            for number, terms in enumerate(block.by_text(), first_text):
                for document in self.documents.having(number).tolist():
                    yield document, terms

    def _encoded(self, queries: Iterable[np.ndarray]) -> list[np.ndarray]:
        encoded = self.ranker.queries.vectors(queries)
        return [encoded.of(number) for number in encoded.rows.tolist()]

    def _numbered(self) -> Iterator[tuple[int, Postings]]:
        """Yield each block with the number of its first text."""
        first_text = 0
        for block in self.blocks:
            yield first_text, block
            first_text += len(block.counts)


def _fault(block: Postings, vocabulary: int) -> str:
    """Return what is wrong with a block's arrays; "" where a search of them is safe."""
    terms, ends = block.terms if len(block.terms) == 2 else (np.array([-1]), np.array([0]))
    if len(terms) and (terms[0] < 0 or terms[-1] >= vocabulary or (np.diff(terms) <= 0).any()):
        return f"its terms are not in order, or not of the model's {vocabulary:,}"
    if (np.diff(ends, prepend=0) <= 0).any() or (ends[-1] if len(ends) else 0) != len(block.texts):
        return "where the postings of its terms end"
    if len(block.weights) != len(block.texts):
        return "its number of weights"
    if not np.array_equal(np.bincount(block.texts, minlength=len(block.counts)), block.counts):
        return "how many terms each text has"
    return ""
