"""Rank with systems and their parts: each distinct part once, and each text once by a model that ranks the pool."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from deepsiam.trainer.ranking.evaluation import fusion, run_file
from deepsiam.trainer.ranking.evaluation.expression import BM25, Expression, Fuse, Leaf, Rerank, walk
from deepsiam.trainer.ranking.evaluation.results_file import SystemStage
from deepsiam.trainer.ranking.evaluation.systems import Choice, Systems, is_run_file, ranks_all
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import ScoresAll, System

CHOSEN = 10  # documents that a weight is chosen by: nDCG@10
Rankings = list[Ranked]  # one for each query


class Parts:
    """Ranks a task with systems and their parts, each once.

    Args:
        systems: has the models.
        task: the queries and the pool.
        depth: how many documents of each ranking are needed.
        wanted: the systems that will be asked for, each followed by `done`.
        choices: the weights of all parts that fuse, once they are needed.

    Attributes:
        beside: others, of other tasks; what they have encoded of the same pool is not encoded again.
    """

    def __init__(
        self,
        systems: Systems,
        task: Task,
        depth: int,
        wanted: Sequence[Expression],
        choices: Mapping[Expression, Choice],
    ) -> None:
        self.systems, self.task, self.depth, self.choices = systems, task, depth, choices
        self.beside: Sequence[Parts] = ()
        self.remarks: list[str] = []  # on run files
        self._wanted = list(wanted)
        self._seconds: dict[Expression, float] = defaultdict(float)
        self._passes: dict[Expression, float] = {}
        self._bias: dict[Expression, float | None] = {}
        self._depths = _depths(wanted, depth)
        self._whole = {BM25, *(part for each in wanted for part in walk(each) if isinstance(part, Leaf))}
        self._encoded: dict[Leaf, System] = {}
        self._ranked: dict[tuple[Expression, int], Rankings] = {}

    def rank(self, part: Expression, k: int) -> Rankings:
        """Return at most k documents for each query, best first."""
        depth = k if _fuses_lists(part) else self._depths[part]
        if (part, depth) not in self._ranked:
            with self._timed(part):
                self._ranked[part, depth] = self._rank(part, depth)
        return [Ranked(documents[:k], scores[:k]) for documents, scores in self._ranked[part, depth]]

    def best_weight(self, part: Expression) -> float:
        """Choose the weight of a part that fuses."""
        k = self.depth if any(map(_fuses_lists, walk(part))) else CHOSEN
        with self._timed(part):
            rankings = self._fused(part, k, fusion.WEIGHTS)
        return fusion.best_weight(list(map(self.task.measure, rankings)))

    def done(self, part: Expression) -> None:
        """Free the encoded texts that no other wanted part needs."""
        self._wanted.remove(part)
        needed = {leaf for wanted in self._wanted for leaf in self._needed(wanted)}
        self._encoded = {leaf: system for leaf, system in self._encoded.items() if leaf in needed}

    def stages(self, expression: Expression) -> list[SystemStage]:
        """Describe a system that was ranked."""
        return [self._stage(part) for part in dict.fromkeys(walk(expression))]

    def _stage(self, part: Expression) -> SystemStage:
        seconds = round(self._seconds[part], 3)
        if isinstance(part, Leaf):
            about, ranker = self.systems.about(part), self.systems.rankers.get(part)
            passes = ranker.passes(len(self.task.pool)) if ranker else None
            return SystemStage(stage=str(part), seconds=seconds, passes=passes, **about)
        second = part.scorer if isinstance(part, Rerank) else part.second
        choice = self.choices.get(part)
        fused = {"fused": [str(part.first), str(second)], **choice._asdict()} if choice else {}
        if isinstance(part, Fuse):
            return SystemStage(stage="fuse", seconds=seconds, passes=0, **fused)
        about = self.systems.about(part.scorer)
        cost = {"passes": self._passes.get(part), "position_bias": self._bias.get(part)}
        return SystemStage(stage=part.stage, seconds=seconds, **{"depth": part.depth, **cost, **about, **fused})

    def _rank(self, part: Expression, k: int) -> Rankings:
        if is_run_file(part):
            assert isinstance(part, Leaf)
            read = run_file.read(Path(part.path), self.task)
            self.remarks += read.remarks
            return self.task.first(read.ranked, k)
        if isinstance(part, Leaf):
            return self.task.rank(self._encode(part), k)
        weight = fusion.ONLY_SECOND if part.mix is None else self.choices[part].weight
        (ranked,) = self._fused(part, k, [weight])
        return ranked

    def _fused(self, part: Expression, k: int, weights: Sequence[float | None]) -> list[Rankings]:
        """Rank with a part that fuses, or only re-ranks, by each of the weights."""
        if isinstance(part, Rerank):
            found = self._list(part.first, max(k, part.depth))
            scores = self._scores(part, found)
            return [list(map(fusion.reordered, found, scores, [weight] * len(found))) for weight in weights]
        assert isinstance(part, Fuse)
        if ranks_all(part):
            first, second = self._system(part.first), self._system(part.second)
            return fusion.rank(first, second, weights, k, self.task.left_out)
        lists = self._list(part.first, k), self._list(part.second, k)
        return [list(map(fusion.fuse_lists, *lists, [weight] * len(lists[0]))) for weight in weights]

    def _system(self, part: Expression) -> ScoresAll:
        """Encode the pool and return a system that scores all of it."""
        if isinstance(part, Leaf):
            return self._encode(part)
        assert isinstance(part, Fuse)
        first, second = self._system(part.first), self._system(part.second)
        return fusion.Fused(first, second, self.choices[part].weight, self.task.left_out)

    def _encode(self, leaf: Leaf) -> System:
        """Encode or index the task's texts."""
        if leaf not in self._encoded:
            known = [parts._encoded.get(leaf) for parts in self.beside if parts.task.pool == self.task.pool]
            with self._timed(leaf):
                self._encoded[leaf] = self.systems.rankers[leaf].system(self.task, next(filter(None, known), None))
        return self._encoded[leaf]

    def _needed(self, wanted: Expression) -> Iterator[Expression]:
        """Yield the leaves that a system will use the encoded texts of."""
        for part in walk(wanted):
            if (part, self._depths.get(part)) not in self._ranked:
                if isinstance(part, Rerank):
                    yield part.scorer
                elif ranks_all(part):
                    yield from walk(part)

    def _scores(self, part: Rerank, found: Rankings) -> list[np.ndarray]:
        """Score what is re-ranked; with what the scorer has encoded, where it ranks the whole pool, too."""
        first, ranker = [ranked.documents[: part.depth] for ranked in found], self.systems.rankers[part.scorer]
        self._passes[part] = round(sum(ranker.passes(len(documents)) for documents in first) / len(first), 1)
        if part.scorer in self._whole:
            return list(map(self._encode(part.scorer).of, range(len(first)), first))
        lists = [
            (query, [self.task.pool[i] for i in documents.tolist()])
            for query, documents in zip(self.task.queries, first, strict=True)
            if len(documents)
        ]
        if not lists:
            return [NOTHING.scores] * len(first)
        scores = iter(ranker.scores(lists, "re-rank"))
        self._bias[part] = ranker.position_bias
        if ranker.passes_made is not None:
            self._passes[part] = round(ranker.passes_made * len(lists) / len(first), 1)
        return [next(scores) if len(documents) else NOTHING.scores for documents in first]

    def _list(self, part: Expression, k: int) -> Rankings:
        """Rank, to fuse the scores; documents that were not re-ranked share the lowest score of those that were."""
        ranked = self.rank(part, k)
        if not isinstance(part, Rerank):
            return ranked
        return [
            Ranked(documents, np.maximum(scores, scores[: part.depth].min(initial=np.inf)))
            for documents, scores in ranked
        ]

    @contextmanager
    def _timed(self, part: Expression) -> Iterator[None]:
        """Count the seconds of a block for a part, without those that are counted for others within it."""
        began, counted = time.monotonic(), sum(self._seconds.values())
        yield
        within = sum(self._seconds.values()) - counted
        self._seconds[part] += time.monotonic() - began - within


def _fuses_lists(part: Expression) -> bool:
    """Whether what a part ranks depends on how long the rankings are that it fuses."""
    return isinstance(part, Fuse) and not ranks_all(part)


def _depths(wanted: Sequence[Expression], depth: int) -> dict[Expression, int]:
    """Return how many documents of each part's ranking are needed, where it is ranked."""
    depths: dict[Expression, int] = {}

    def need(part: Expression, k: int) -> None:
        depths[part] = max(k, depths.get(part, 0))
        if isinstance(part, Rerank):
            need(part.first, max(k, part.depth))
        elif isinstance(part, Fuse) and _fuses_lists(part):
            need(part.first, k)
            need(part.second, k)

    for part in wanted:
        need(part, depth)
    return depths
