"""Hard negatives: documents that a system ranks high for a query and that are not known to be relevant to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.derive import NewCandidates
from deepsiam.data_prep.collections.groups import Groups
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import track
from deepsiam.models.interface import Corpus
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.ranking.retrieval.system import Texts, in_pool_order
from deepsiam.trainer.training.recipe.margin import score_limit

SHINGLE = 5  # tokens
COPY_SIMILARITY = 0.8  # Jaccard similarity from which on a document counts as a copy
REASONS = {  # why documents are left out, in words
    "relevant": "relevant",
    "own": "the query's own text",
    "excluded": "excluded for the query",
    "copy": "copies or near-copies of a relevant one",
    "margin": "by --margin",
    "skipped": "by --skip",
    "empty": "without text",
    "serves": "by --per-document",
}


@dataclass
class Mined:
    """The negatives of each query that one system found, best first, and what to report on them."""

    negatives: dict[int, Ranked] = field(default_factory=dict)  # documents' numbers, by the query's number
    first_relevant: dict[int, int] = field(default_factory=dict)  # its rank, from 0, by the query's number
    left_out: Counter[str] = field(default_factory=Counter)  # how many documents, by which of `REASONS`
    above_relevant: int = 0  # how many negatives score more than the best relevant document: some may be relevant, too


def mining_texts(collection: Collection, split: str) -> Texts:
    """Return the queries of a split, and the documents to mine from, in pool order.

    The documents are the split's pool. For a split without a pool, they are all documents except those that are only in
    the pools of other splits, so that no document of a held-out split is trained on.

    Raises:
        InputError: no such split; its labels are no relevance; none of its documents is relevant.
    """
    groups = collection.judged_groups(split)
    if not (groups.labels > 0).any():
        raise InputError(f"{collection.directory}: split {split} has no relevant document")
    queries = np.unique(groups.queries).tolist()
    return Texts(collection, queries, in_pool_order(_pool(collection, split, groups)).tolist())


def _pool(collection: Collection, split: str, groups: Groups) -> np.ndarray:
    if groups.pool is not None:
        return groups.pool
    held_out = np.zeros(len(collection.corpus), bool)
    for name in collection.splits():
        if (pool := collection.groups(name).pool) is not None:
            held_out[pool] = True
    held_out[groups.candidates.flat] = False
    return np.flatnonzero(~held_out)


class Negatives(NamedTuple):
    """The negatives of a query that several systems found, in the order in which they are given."""

    documents: np.ndarray  # int64 [n]
    scores: np.ndarray  # fp32 [n], by the system that found it
    systems: np.ndarray  # uint8 [n], that system's number


def mine(
    texts: Texts, relevant: Relevant, ranked: Sequence[Ranked], margin: float | str | None, skip: int = 0
) -> Mined:
    """Keep the documents of each ranking that may serve as negatives of its query.

    These documents are left out: those relevant to the query's text, in any group; those that are this text, by their
    tokens or id; those that are excluded for it; copies and near-copies of a relevant document, which share
    `COPY_SIMILARITY` of their 5-grams of tokens with it; those without text; the first `skip` of the ranking; and, with
    a margin, those whose score is not at least the margin below the best relevant document's, because they may be
    relevant, too (as in NV-Retriever, de Souza P. Moreira et al., 2024, section 3). With a margin, a query whose
    relevant documents were not found gets no negatives: they score less than all documents that were found.

    Args:
        texts: the queries and the pool.
        relevant: the split's relevant documents.
        ranked: what was found for each query, as positions in the pool.
        margin: in units of the system's scores, or a share (trainer/training/recipe/margin.py); None: scores do not
            matter.
        skip: how many documents of each ranking are too near the top to be trusted.
    """
    copies, mined = _Copies(texts.collection.corpus), Mined()
    pool = np.asarray(texts.pool)
    for query, (places, scores) in zip(texts.queries, track(ranked, "filter", "queries"), strict=True):
        documents, relevant_documents = pool[places], relevant.of(query)
        reasons = np.full(len(documents), "", "U8")
        is_relevant, is_own = np.isin(documents, relevant_documents), relevant.are_own(query, documents)
        best_score = scores[is_relevant].max(initial=-np.inf)
        if is_relevant.any():
            mined.first_relevant[query] = int(is_relevant.argmax())
        if margin is not None:
            reasons[scores > score_limit(best_score, margin)] = "margin"
        reasons[:skip] = "skipped"
        for i in np.flatnonzero((reasons == "") & ~is_relevant).tolist():
            if not len(texts.collection.corpus.tokens(int(documents[i]))):
                reasons[i] = "empty"
            elif any(copies.are(int(documents[i]), positive) for positive in relevant_documents.tolist()):
                reasons[i] = "copy"
        reasons[np.isin(documents, relevant.collection.excluded.of(query))] = "excluded"
        reasons[is_own] = "own"
        reasons[is_relevant] = "relevant"
        mined.left_out.update(reasons[reasons != ""].tolist())
        mined.negatives[query] = Ranked(documents[reasons == ""], scores[reasons == ""])
        mined.above_relevant += int((scores[reasons == ""] > best_score).sum())
    return mined


def consistent(groups: Groups, mined: Sequence[Mined], k: int) -> np.ndarray:
    """Return of which groups some system ranks a relevant document among the first k, bool [groups].

    The consistency filter of Promptagator (Dai et al., 2023, section 3.2) for queries that a language model wrote.
    """
    found = {query for miner in mined for query, rank in miner.first_relevant.items() if rank < k}
    return np.isin(groups.queries, list(found))


class _Copies:
    """Detects documents that are copies or near-copies of each other."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.shingles = lru_cache(1 << 16)(self._shingles)

    def are(self, first: int, second: int) -> bool:
        """Whether the Jaccard similarity of two documents' sets of 5-grams is `COPY_SIMILARITY` or more."""
        a, b = self.shingles(first), self.shingles(second)
        if min(len(a), len(b)) < COPY_SIMILARITY * max(len(a), len(b)):
            return False
        shared = len(np.intersect1d(a, b, assume_unique=True))
        return shared >= COPY_SIMILARITY * (len(a) + len(b) - shared)

    def _shingles(self, document: int) -> np.ndarray:
        """Return the distinct 5-grams of a document's tokens, hashed, uint64; a shorter text is a single n-gram."""
        tokens = self.corpus.tokens(document).astype(np.uint64) + np.uint64(1)  # so that a leading 0 counts
        if not len(tokens):
            return tokens
        windows = np.lib.stride_tricks.sliding_window_view(tokens, min(SHINGLE, len(tokens)))
        factors = np.uint64(0x9E3779B97F4A7C15) ** np.arange(1, windows.shape[1] + 1, dtype=np.uint64)
        return np.unique((windows * factors).sum(axis=1, dtype=np.uint64))


def merged(mined: Sequence[Mined], first_system: int) -> dict[int, Negatives]:
    """Merge what several systems found: for each query the first of every system, then the second of every, and so on.

    A document that several found counts for the one that ranks it highest, among equals for the earlier one.
    `first_system` is the number of the first system.
    """
    negatives = {}
    for query in mined[0].negatives:
        lists = [miner.negatives[query] for miner in mined]
        counts = [len(ranked.documents) for ranked in lists]
        documents, scores = (np.concatenate(arrays) for arrays in zip(*lists, strict=True))
        systems = np.repeat(np.arange(first_system, first_system + len(lists), dtype=np.uint8), counts)
        order = np.lexsort((systems, np.concatenate([np.arange(n) for n in counts])))
        _, at = np.unique(documents[order], return_index=True)  # where each document is first
        order = order[np.sort(at)]
        negatives[query] = Negatives(documents[order], scores[order], systems[order])
    return negatives


def limited(negatives: Mapping[int, Negatives], most_queries: int) -> dict[int, Negatives]:
    """Let each document serve at most so many queries: those that have it nearest the top, of equals the first ones.

    So no document that is near everything is the negative of everything.
    """
    counts = [len(hard_negatives.documents) for hard_negatives in negatives.values()]
    documents = np.concatenate([hard_negatives.documents for hard_negatives in negatives.values()])
    places = np.concatenate([np.arange(n) for n in counts])
    order = np.lexsort((np.repeat(list(negatives), counts), places, documents))
    _, starts, uses = np.unique(documents[order], return_index=True, return_counts=True)
    serves = np.empty(len(documents), bool)
    serves[order] = np.arange(len(documents)) - np.repeat(starts, uses) < most_queries
    masks = zip(negatives.items(), np.split(serves, np.cumsum(counts)[:-1]), strict=True)
    return {query: Negatives(*(array[mask] for array in hard_negatives)) for (query, hard_negatives), mask in masks}


def with_negatives(groups: Groups, negatives: Mapping[int, Negatives]) -> NewCandidates:
    """Append to each group the negatives of its query that it lacks, labelled 0, without a teacher's score."""
    new_negatives: list[Negatives] = []
    for query, candidates, _ in map(groups.__getitem__, range(len(groups))):
        is_new = ~np.isin(negatives[query].documents, candidates)
        new_negatives.append(Negatives(*(array[is_new] for array in negatives[query])))
    documents, scores, systems = map(np.concatenate, zip(*new_negatives, strict=True))
    ends, counts = groups.candidates.ends, [len(hard_negatives.documents) for hard_negatives in new_negatives]
    at, (found_by, found_scores) = np.repeat(ends, counts), _found(groups)
    return NewCandidates(
        np.asarray(groups.queries),
        ends + np.cumsum(counts),
        np.insert(groups.candidates.flat, at, documents),
        np.insert(groups.labels, at, 0),
        np.insert(found_by, at, systems),
        np.insert(found_scores, at, scores),
        None if groups.scores is None else np.insert(groups.scores, at, np.nan),
    )


def with_scores(split: str, teacher: Ranker) -> NewCandidates:
    """Return the groups of a split with a teacher's scores beside their labels.

    The scores are those that its losses compare: divided by its temperature, as a student's are.

    Raises:
        InputError: no such split, its labels are classes, or a score is not finite.
    """
    collection = teacher.collection
    groups = collection.groups(split)
    if collection.classes:
        raise InputError(f"{collection.directory}: its labels are classes: a teacher has no scores for them")
    every = (groups[i] for i in range(len(groups)))
    lists = [(query, candidates.tolist()) for query, candidates, _ in every if len(candidates)]
    scores = np.concatenate(teacher.scores(lists)) / teacher.temperature
    return NewCandidates(
        np.asarray(groups.queries),
        groups.candidates.ends,
        groups.candidates.flat,
        groups.labels,
        *_found(groups),
        scores.astype(np.float32),
    )


def _found(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Return `found_by` and `found_scores` of all candidates; 0 and NaN where no system was asked."""
    by, scores = groups.found_by, groups.found_scores
    return (
        np.zeros(len(groups.labels), np.uint8) if by is None else np.asarray(by),
        np.full(len(groups.labels), np.nan, np.float32) if scores is None else np.asarray(scores),
    )
