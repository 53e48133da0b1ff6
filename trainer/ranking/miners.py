"""The systems that find negatives: `bm25`, a model, or `A > 100 B`, the first 100 of A re-ranked by B.

The language is that of `trainer.evaluate`. A re-ranker, such as a cross-encoder, also scores the relevant documents
that A did not find, so that a margin compares each negative with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.expression import (
    Expression,
    Given,
    Leaf,
    Rerank,
    is_run_file,
    parse_unnamed,
    problem,
    walk,
)
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked, best, salts_of
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import Texts


@dataclass(frozen=True)
class Miners:
    """Systems, opened for a collection."""

    systems: Systems

    @classmethod
    def open(cls, arguments: Sequence[str], collection: Collection, split: str, precision: str | None) -> Miners:
        """Read the arguments of `--system` and open their models.

        Raises:
            InputError: one is not of the language, or cannot find negatives.
        """
        parsed = [Given(text, _read(text), text) for text in arguments]
        for i, (text, expression, _) in enumerate(parsed):
            if any(expression == earlier.expression for earlier in parsed[:i]):
                raise InputError(f"--system '{text}' is there twice: leave out one")
        systems = Systems.open(collection, parsed, precision)
        systems.check(split)
        for _, expression, _ in parsed:
            for part in walk(expression):
                if isinstance(part, Rerank):
                    systems.rankers[part.second].require_by_itself()
        return cls(systems)

    @property
    def names(self) -> list[str]:
        """The systems, with the checkpoints of their models."""
        return [self._name(system.expression) for system in self.systems.named_systems]

    def depth(self, number: int, texts: Texts, k: int) -> int:
        """Return how many documents `rank` ranks for a query, besides the relevant ones."""
        depths = [
            part.depth for part in walk(self.systems.named_systems[number].expression) if isinstance(part, Rerank)
        ]
        return min(k, len(texts.pool), *depths)

    def rank(self, number: int, texts: Texts, relevant: Relevant, k: int) -> list[Ranked]:
        """Return at most k documents for each query, best first, by system `number`; scores are rounded (`search`)."""
        return self._rank(self.systems.named_systems[number].expression, texts, relevant, k)

    def _name(self, part: Expression) -> str:
        if isinstance(part, Leaf):
            return self.systems.rankers[part].name
        assert isinstance(part, Rerank)
        return f"{self._name(part.first)} > {part.depth} {self.systems.rankers[part.second].name}"

    def _rank(self, part: Expression, texts: Texts, relevant: Relevant, k: int) -> list[Ranked]:
        if isinstance(part, Leaf):
            return self.systems.rankers[part].system(texts).rank(min(k, len(texts.pool)), salts_of(texts.queries))
        assert isinstance(part, Rerank)
        candidates = [ranked.documents for ranked in self._rank(part.first, texts, relevant, part.depth)]
        return _reranked(self.systems.rankers[part.second], texts, candidates, relevant, k)


def _read(text: str) -> Expression:
    """Parse a system without a name; a path that exists needs no quotation marks."""
    expression = Leaf(text) if os.path.exists(text) else parse_unnamed(text)
    for part in walk(expression):
        if is_run_file(part):
            raise problem(text, part.at, "a run file cannot be mined with: name a model")
        if not isinstance(part, Leaf) and not (isinstance(part, Rerank) and part.fusion is None):
            raise problem(
                text, part.at, "negatives are found by one model, or by one that another re-ranks: write A > 100 B"
            )
    return expression


def _reranked(
    scorer: Ranker, texts: Texts, candidates: Sequence[np.ndarray], relevant: Relevant, k: int
) -> list[Ranked]:
    """Rank the candidates of each query, places in the pool int64 [n], and its relevant documents."""
    pool = np.asarray(texts.pool)
    order = pool.argsort()
    lists = []
    for query, places in zip(texts.queries, candidates, strict=True):
        documents = relevant.of(query)
        at = order[np.minimum(pool.searchsorted(documents, sorter=order), len(pool) - 1)]
        lists.append(np.union1d(places, at[pool[at] == documents]))
    scored = [(query, pool[places].tolist()) for query, places in zip(texts.queries, lists, strict=True) if len(places)]
    scores = iter(scorer.scores(scored, "re-rank") if scored else ())
    ranked = []
    for query, places in zip(texts.queries, lists, strict=True):
        if not len(places):
            ranked.append(NOTHING)
            continue
        ((columns, scores_of_list),) = best(next(scores)[None], k, salts_of([query])).each()
        ranked.append(Ranked(places[columns], scores_of_list))
    return ranked
