"""Learned sparse retrieval: a text has a weight for each term of a vocabulary, most of them 0; scores are products.

A text is an array of `term_type`, sorted by term, without the terms of weight 0: `TextVectors.flat` is such an array
for several texts. Documents are kept as postings: for each term, the texts that have it.

A score is summed in fp64 in the order of the terms, and rounded to fp32. So it depends on no other text: equal texts
tie, and a ranking does not depend on how the documents are split into blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.common.progress import meter
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.retrieval.encode import TextVectors
from deepsiam.trainer.ranking.retrieval.search import BestPositive, Ranked, require_numbers
from deepsiam.trainer.ranking.retrieval.system import System
from deepsiam.trainer.training.engine.world import warn

BLOCK = 32_768  # texts whose scores are held at once; their numbers fit in uint16


def term_type(weight: str = "float32") -> np.dtype:
    """Return the type of a term with its weight."""
    return np.dtype([("term", np.int32), ("weight", weight)])


def terms_of(encoded: Vectors) -> tuple[np.ndarray, np.ndarray]:
    """Return the terms of n texts, one text after the other, and how many each has, given weights [n, 1, V]."""
    weights = encoded.vectors[:, 0]
    texts, terms = weights.nonzero(as_tuple=True)  # NaN is not 0
    flat = np.empty(len(terms), term_type())
    flat["term"], flat["weight"] = terms.cpu().numpy(), weights[texts, terms].float().cpu().numpy()
    return flat, np.bincount(texts.cpu().numpy(), minlength=len(weights))


class Match(NamedTuple):
    """A term that a query and a document share."""

    term: int
    weight: float  # what it adds to the score: the product of both weights


@dataclass(frozen=True)
class Postings:
    """The terms of a block of texts: for each term, the texts that have it, in order, and their weights."""

    counts: np.ndarray  # int32 [texts], how many terms each text has
    terms: np.ndarray  # int64 [2, T]: the distinct terms in order, and where the postings of each end
    texts: np.ndarray  # uint16 [P], numbers of texts in the block; int64 where it has more than those
    weights: np.ndarray  # fp32 or fp16 [P]

    @classmethod
    def of(cls, flat: np.ndarray, counts: np.ndarray) -> Postings:
        """Sort the terms of some texts, of `term_type` [P], given how many each text has."""
        order = np.argsort(flat["term"], kind="stable")
        terms = flat["term"][order]
        ends = np.append(np.flatnonzero(np.diff(terms)) + 1, len(terms)) if len(terms) else np.empty(0, np.int64)
        numbers = np.arange(len(counts), dtype=np.uint16 if len(counts) <= 1 << 16 else np.int64)
        texts = np.repeat(numbers, counts)[order]
        return cls(counts.astype(np.int32), np.stack([terms[ends - 1], ends]), texts, flat["weight"][order])

    def scores(self, query: np.ndarray) -> np.ndarray:
        """Return the scores of all texts, fp32, for a query of `term_type`."""
        shared, slices = self._shared(query)
        if not slices:
            return np.zeros(len(self.counts), np.float32)
        texts = np.concatenate([self.texts[part] for part in slices], dtype=np.intp)
        products = np.concatenate([self.weights[part] for part in slices], dtype=np.float64)
        products *= np.repeat(shared["weight"].astype(np.float64), [part.stop - part.start for part in slices])
        return np.bincount(texts, products, len(self.counts)).astype(np.float32)

    def matches(self, query: np.ndarray, text: int) -> list[Match]:
        """Return the terms that a text shares with a query, the largest product first."""
        matches = []
        for (term, weight), part in zip(*self._shared(query), strict=True):
            place = part.start + int(np.searchsorted(self.texts[part], self.texts.dtype.type(text)))
            if place < part.stop and self.texts[place] == text:
                matches.append(Match(int(term), float(weight) * float(self.weights[place])))
        return sorted(matches, key=lambda match: (-match.weight, match.term))

    def products(self, query: np.ndarray) -> int:
        """Return how many products the scores of a query take."""
        return sum(part.stop - part.start for part in self._shared(query)[1])

    def by_text(self) -> list[np.ndarray]:
        """Return the terms of each text."""
        order = np.argsort(self.texts, kind="stable")
        flat = np.empty(len(order), term_type())
        flat["term"] = np.repeat(self.terms[0], np.diff(self.terms[1], prepend=0))[order]
        flat["weight"] = self.weights[order]
        return np.split(flat, self.counts.cumsum()[:-1])

    def _shared(self, query: np.ndarray) -> tuple[np.ndarray, list[slice]]:
        """Return the query's terms that a text has, and the places of their postings."""
        terms, ends = self.terms
        places = np.searchsorted(terms, query["term"])
        is_there = places < len(terms)
        is_there[is_there] = terms[places[is_there]] == query["term"][is_there]
        places = places[is_there]
        starts = np.where(places > 0, ends[places - 1], 0)
        return query[is_there], list(map(slice, starts.tolist(), ends[places].tolist()))


def search_postings(
    queries: Sequence[np.ndarray], blocks: Sequence[tuple[int, Postings]], k: int, salts: np.ndarray | None = None
) -> list[Ranked]:
    """Find the k best texts for each query of `term_type`, ties in their order; `salts` as in `search`.

    Each block has the number of its first text. A text that shares no term with the query is not ranked.
    """
    top_k, progress = BestPositive(len(queries), k, salts), 0
    with meter("search", "queries and blocks of texts", len(queries) * len(blocks)) as report:
        for first_text, block in blocks:
            for i, query in enumerate(queries):
                scores = require_numbers(block.scores(query))
                texts = np.flatnonzero(scores >= top_k.least[i])
                top_k.add(i, texts + first_text, scores[texts])
                report(progress := progress + 1, "")
    return top_k.ranked()


def warn_of_empty(queries: Sequence[np.ndarray]) -> None:
    """Say on rank 0 how many queries have no term: nothing is found for them."""
    count = sum(not len(query) for query in queries)
    if count:
        warn(
            f"warning: {count:,} of {len(queries):,} queries have no term with a weight (no text, or stop words "
            "alone): nothing is found for them"
        )


@dataclass(frozen=True)
class SparseSystem(System):
    """A system of texts whose scores are the inner products of the weights of their terms."""

    queries: TextVectors
    documents: TextVectors

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.queries.rows), len(self.documents.rows)

    def scores(self, rows: slice) -> np.ndarray:
        scores = np.empty((len(self.queries.rows[rows]), len(self.documents.rows)), np.float32)
        for start, block in self._blocks:
            for row, query in zip(scores, self.queries.rows[rows].tolist(), strict=True):
                row[start : start + len(block.counts)] = block.scores(self.queries.of(query))
        return scores

    def of(self, query: int, documents: np.ndarray) -> np.ndarray:
        numbers = self.documents.rows[documents]
        block = Postings.of(self.documents.joined(numbers), self.documents.counts(numbers))
        return block.scores(self.queries.of(int(self.queries.rows[query])))

    def rank(self, k: int, salts: np.ndarray | None = None) -> list[Ranked]:
        queries = [self.queries.of(query) for query in self.queries.rows.tolist()]
        warn_of_empty(queries)
        return search_postings(queries, self._blocks, k, salts)

    @cached_property
    def _blocks(self) -> list[tuple[int, Postings]]:
        blocks = []
        for start in range(0, len(self.documents.rows), BLOCK):
            numbers = self.documents.rows[start : start + BLOCK]
            blocks.append((start, Postings.of(self.documents.joined(numbers), self.documents.counts(numbers))))
        return blocks
