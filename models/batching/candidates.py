"""The examples of a matching model: queries with their candidates, and the negatives drawn for them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Literal

import numpy as np

from deepsiam.models.interface import Corpus

Unit = Literal["positive", "group", "pair"]
"""What an example is: a relevant document of a query; a query with all its candidates; or a query with one of them."""

Scale = Literal["as_given", "min_max"]
"""How a teacher's scores are scaled: not at all; or those of each query's chosen candidates from 0 to 1."""


@dataclass(frozen=True)
class Example:
    """A query and the documents that it is compared with.

    For the unit `positive` these are the relevant document, then the hard negatives that the data give for the query.
    """

    query: np.ndarray  # token ids without special tokens
    candidates: np.ndarray  # int64 [n], numbers of documents
    labels: np.ndarray  # fp32 [n]: relevance, a class, or a teacher's score
    relevant: np.ndarray  # int64 [r]: all documents known to be relevant to the query's text, or to be it
    mined: bool = False  # whether its hard negatives were mined by the run
    scores: np.ndarray | None = None  # fp32 [n]: a teacher's; None: those of the labels
    text: str = ""  # the query, for methods that do not read its ids


class Candidates:
    """The documents of a corpus, from which the negatives of a query are drawn."""

    def __init__(self, corpus: Corpus, pool: np.ndarray, unknown: int | None = None) -> None:
        """Take the numbers of the documents to draw at random from, int64, and the id of unknown tokens."""
        self.corpus, self.pool, self.unknown = corpus, pool, unknown
        # kept: drawing compares texts, and the same documents are negatives of many queries
        self.key = lru_cache(1 << 16)(lambda document: text_key(corpus.tokens(document)))

    def keys(self, documents: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return a key for each document, int64 [n], the same for documents of the same text."""
        return np.array([self.key(int(i)) for i in documents], dtype=np.int64)

    def never_negative(self, query: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        """Return the keys, int64 [n], of the texts that are never negatives of a query: relevant ones, and its own.

        A query without tokens, or with an unknown one, is not known to equal a document.
        """
        query_key = [text_key(query)] if len(query) and self.unknown not in query.tolist() else []
        return np.concatenate([self.keys(relevant), np.array(query_key, np.int64)])

    def choose(self, example: Example, hard: int, at_random: int, rng: np.random.Generator) -> list[int]:
        """Return the example's first candidate, then `hard` of its own negatives, then `at_random` from the pool.

        No negative is relevant to the query's text, or has the same text as a relevant document or as the query.
        Negatives from the pool also differ in text from the query's own negatives. With `hard` there are fewer where
        all other documents are relevant, or copies of such.
        """
        positive, hard_negatives = int(example.candidates[0]), example.candidates[1:]
        relevant = set(self.never_negative(example.query, example.relevant).tolist())
        if example.mined:
            # Those with the smallest hashes: a list with one other document changes one draw at most. Two runs that
            # differ in rounding, as on another number of ranks, mine lists that differ in a few documents.
            order = _hashes(hard_negatives, rng.integers(2**64, dtype=np.uint64)).argsort()
            irrelevant = (i for i in hard_negatives[order].tolist() if self.key(i) not in relevant)
            negatives = list(islice(irrelevant, hard))
        else:
            negatives = self._draw(hard_negatives, hard, relevant, 0, rng)
        number = hard + at_random - len(negatives)  # a hard negative may be a copy of a relevant document
        excluded = relevant | set(self.keys(negatives).tolist())
        negatives += self._draw(self.pool, number, excluded, len(example.relevant) + len(negatives), rng)
        if len(negatives) < at_random and not hard:
            raise ValueError(f"a query has only {len(negatives)} negatives to draw from, not {at_random}")
        return [positive, *negatives]

    def choose_scored(self, example: Example, limit: int, rng: np.random.Generator, *, any_label: bool) -> list[int]:
        """Return the example's first candidate and others of its own, drawn if there are more than `limit` in all.

        Unless `any_label`, none of the others has the same text as a relevant document or as the query.
        """
        first_candidate, other_candidates = int(example.candidates[0]), example.candidates[1:]
        excluded = set() if any_label else set(self.never_negative(example.query, example.relevant).tolist())
        if len(other_candidates) >= limit:
            return [first_candidate, *self._draw(other_candidates, limit - 1, excluded, 0, rng)]
        return [first_candidate, *(i for i in other_candidates.tolist() if not excluded or self.key(i) not in excluded)]

    def _draw(
        self, among: np.ndarray, number: int, excluded: set[int], spare: int, rng: np.random.Generator
    ) -> list[int]:
        if not number:
            return []
        size = min(number + spare, len(among))  # enough, even if every excluded document is drawn
        negatives = [i for i in rng.choice(among, size, replace=False).tolist() if self.key(i) not in excluded]
        if len(negatives) < number:  # copies of excluded documents were drawn, too
            negatives = [i for i in rng.permutation(among).tolist() if self.key(i) not in excluded]
        return negatives[:number]


def _hashes(documents: np.ndarray, key: np.uint64) -> np.ndarray:
    # SplitMix64's function (Steele et al., 2014): a document's hash does not depend on its place in the list
    mixed = documents.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def text_key(tokens: np.ndarray) -> int:
    """Return an int64 of a text's token ids [t], the same for those of any integer type."""
    return hash_of(tokens.astype(np.int64).tobytes())


def hash_of(content: bytes) -> int:
    """Return an int64 that differs, but for chance, for different content."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def columns(choices: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the column of each query's documents, int64 [Q, n], -1 where a query has fewer than n.

    The columns are ordered: the first document of each query, then the others of query 0, of query 1, ...
    """
    # so document i is the positive of query i, and in-batch scores have the positives on their diagonal
    column = np.full((len(choices), max(map(len, choices))), -1, dtype=np.int64)
    end = len(choices)
    for i, documents in enumerate(choices):
        column[i, 0] = i
        start, end = end, end + len(documents) - 1
        column[i, 1 : len(documents)] = np.arange(start, end)
    return column


def labels_of(examples: Sequence[Example], choices: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the labels of each query's documents, fp32 [Q, n]: 0 for sampled negatives and for empty slots."""
    return _rows([example.labels for example in examples], examples, choices)


def scores_of(examples: Sequence[Example], choices: Sequence[Sequence[int]], scale: Scale) -> np.ndarray:
    """Return a teacher's scores of each query's documents, fp32 [Q, n]: 0 for empty slots."""
    values = [example.labels if example.scores is None else example.scores for example in examples]
    scores = _rows(values, examples, choices)
    if scale == "min_max":
        for row, documents in zip(scores, choices, strict=True):
            row[: len(documents)] = min_max(row[: len(documents)])
    return scores


def min_max(scores: np.ndarray) -> np.ndarray:
    """Scale scores, fp32 [n], from 0, the lowest, to 1, the highest; equal ones become 0."""
    lowest = scores.min()
    scaled: np.ndarray = (scores - lowest) / ((scores.max() - lowest) or 1)
    return scaled


def _rows(values: Sequence[np.ndarray], examples: Sequence[Example], choices: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the values, given for each example's candidates, of each query's documents: fp32 [Q, n]."""
    rows = np.zeros((len(choices), max(map(len, choices))), np.float32)
    for row, example, candidate_values, documents in zip(rows, examples, values, choices, strict=True):
        values_by_document = dict(zip(example.candidates.tolist(), candidate_values.tolist(), strict=True))
        row[: len(documents)] = [values_by_document.get(i, 0.0) for i in documents]
    return rows
