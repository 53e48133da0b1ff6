"""Compare systems on a split: each distinct part ranks once, and a model that ranks the pool encodes each text once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.collections.relevant import IdenticalIds
from deepsiam.trainer.ranking.evaluation import fusion, run_file
from deepsiam.trainer.ranking.evaluation.expression import (
    BM25,
    Expression,
    Fuse,
    Leaf,
    Rerank,
    is_run_file,
    ranks_all,
    walk,
)
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metric
from deepsiam.trainer.ranking.evaluation.results_file import About, Identical, Results, SystemStage, results_of
from deepsiam.trainer.ranking.evaluation.systems import Systems, WeightChoice
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import ScoresAll, System

TUNING_DEPTH = 10  # documents that a weight is chosen by: nDCG@10
Rankings = list[Ranked]  # one for each query


def compare(
    systems: Systems,
    split: str,
    write_runs: Path | None = None,
    metrics: Sequence[str] = (),
    identical_ids: IdenticalIds = "auto",
    by_query: bool = False,
) -> Results:
    """Evaluate every system on a split; write a run file of each to a folder, if there is one.

    `metrics` are in addition to those of HEADINGS; `identical_ids` is as in `data_prep.collections.relevant.left_out`;
    `by_query` keeps the values of each query.

    Raises:
        InputError: a system cannot be used as it is given; raised before the first is evaluated.
    """
    depth = max([DEPTH, *(Metric.of(name).depth for name in metrics)])
    choices, task, ranked = systems.check(split), Task.of(systems.collection, split, identical_ids), {}
    parts = Parts(systems, task, depth, [system.expression for system in systems.named_systems], choices)
    for name, expression, _ in systems.named_systems:
        parts_to_free = [(parts, expression)]
        for part in walk(expression):  # each after those that it is made of
            choice = choices.get(part)
            if choice and choice.split and choice.weight is None:
                tuning_parts = parts.of_split(choice.split)
                choices[part] = choice._replace(weight=tuning_parts.best_weight(part))
                parts_to_free.append((tuning_parts, part))
        ranked[name] = parts.rank(expression, depth)
        for owner, part in parts_to_free:
            owner.free(part)
    measures = {name: task.measure(rankings, metrics) for name, rankings in ranked.items()}
    if write_runs:
        for name, rankings in ranked.items():
            run_file.write(write_runs / f"{name}.trec", zip(task.qrels, rankings, strict=True), task.name, name)
    queries = sum(bool(len(systems.collection.excluded.of(query))) for query in task.queries)
    excluded = f"documents that are excluded for {queries:,} queries are left out of their rankings"
    about = About(
        collection=str(systems.collection.directory),
        collection_sha256=systems.collection.sha256,
        precision=systems.precision,
        split=split,
        queries=len(task.queries),
        corpus=len(task.pool),
        ignore_identical_ids=Identical(rule=identical_ids, queries=task.identical),
        metrics=list(metrics),
        remarks=[*parts.remarks, *([excluded] if queries else [])],
    )
    stages = {name: (str(expression), parts.stages(expression)) for name, expression, _ in systems.named_systems}
    return results_of(measures, stages, about, by_query)


class Parts:
    """Ranks a split's queries with systems and their parts, each once.

    Args:
        systems: has the models.
        task: the queries and the pool.
        depth: how many documents of each ranking are needed.
        expressions: the systems that will be scored for, each followed by `free`.
        choices: the weights of all parts that fuse, once they are needed.

    Attributes:
        beside: others, of other splits; what they have encoded of the same pool is not encoded again.
        remarks: on run files.
    """

    def __init__(
        self,
        systems: Systems,
        task: Task,
        depth: int,
        expressions: Sequence[Expression],
        choices: dict[Expression, WeightChoice],
    ) -> None:
        self.systems, self.task, self.depth, self.choices = systems, task, depth, choices
        self.beside: list[Parts] = []
        self.remarks: list[str] = []
        self._by_split: dict[str, Parts] = {}
        self._wanted = list(expressions)
        self._whole = {BM25, *(part for system in expressions for part in walk(system) if isinstance(part, Leaf))}
        self._depths: dict[Expression, int] = {}  # documents that are needed of each ranking
        self._encoded: dict[Leaf, System] = {}
        self._ranked: dict[tuple[Expression, int], Rankings] = {}
        self._seconds: dict[Expression, float] = defaultdict(float)
        self._costs: dict[Expression, dict[str, float | None]] = {}
        for system in expressions:
            self._need(system, depth)

    def of_split(self, split: str) -> Parts:
        """Return what ranks a split's own queries and pool, to choose weights."""
        if split not in self._by_split:
            task = Task.of(self.systems.collection, split, self.task.rule)
            fusions = [part for part, choice in self.choices.items() if choice.split == split]
            self._by_split[split] = Parts(self.systems, task, self.depth, fusions, self.choices)
            self._by_split[split].beside.append(self)
            self.beside.append(self._by_split[split])
        return self._by_split[split]

    def _need(self, part: Expression, k: int) -> None:
        if isinstance(part, Fuse) and not ranks_all(part):  # it has no depth: what it ranks depends on its lists'
            self._need(part.first, k)
            self._need(part.second, k)
            return
        self._depths[part] = max(k, self._depths.get(part, 0))
        if isinstance(part, Rerank):
            self._need(part.first, max(k, part.depth))

    def rank(self, part: Expression, k: int) -> Rankings:
        """Return at most k documents for each query, best first."""
        depth = self._depths.get(part, k)
        if (part, depth) not in self._ranked:
            with self._timed(part):
                (self._ranked[part, depth],) = self._rank(part, depth)
        return [Ranked(documents[:k], scores[:k]) for documents, scores in self._ranked[part, depth]]

    def best_weight(self, part: Expression) -> float:
        """Choose the weight of a part that fuses."""
        fuses_lists = any(isinstance(inner, Fuse) and not ranks_all(inner) for inner in walk(part))
        with self._timed(part):
            ranked = self._rank(part, self.depth if fuses_lists else TUNING_DEPTH, fusion.WEIGHTS)
        return fusion.best_weight([self.task.measure(rankings).means["ndcg@10"] for rankings in ranked])

    def free(self, system: Expression) -> None:
        """Free the encoded texts that no other wanted system needs."""
        self._wanted.remove(system)
        parts: set[Expression] = set()
        for part in (part for expression in self._wanted for part in walk(expression)):
            if (part, self._depths.get(part)) not in self._ranked:
                parts.update([part.second] if isinstance(part, Rerank) else walk(part) if ranks_all(part) else ())
        self._encoded = {leaf: encoded for leaf, encoded in self._encoded.items() if leaf in parts}

    def stages(self, system: Expression) -> list[SystemStage]:
        """Describe a system that was ranked, by its parts."""
        return [self._stage(part) for part in dict.fromkeys(walk(system))]

    def _stage(self, part: Expression) -> SystemStage:
        about: dict[str, Any] = {"seconds": round(self._seconds[part], 3)}
        if isinstance(part, Leaf):
            ranker = self.systems.rankers.get(part)
            passes = ranker.passes(len(self.task.pool)) if ranker else None
            return SystemStage(stage=str(part), passes=passes, **about, **self.systems.about(part))
        if choice := self.choices.get(part):
            about |= {"fused": [str(part.first), str(part.second)], **choice._asdict()}
        if isinstance(part, Fuse):
            return SystemStage(stage="fuse", passes=0, **about)
        about |= self._costs[part] | self.systems.about(part.second)
        return SystemStage(stage=part.stage, depth=part.depth, **about)

    def _rank(self, part: Expression, k: int, weights: Sequence[float | None] = ()) -> list[Rankings]:
        """Rank with a part, by each of some weights if it fuses; without any, by its own."""
        if isinstance(part, Leaf):
            if not is_run_file(part):
                return [self.task.rank(self._encode(part), k)]
            run = run_file.read(Path(part.path), self.task)
            self.remarks += run.remarks
            return [self.task.first(run.ranked, k)]
        weights = weights or [fusion.ONLY_SECOND if part.fusion is None else self.choices[part].weight]
        if isinstance(part, Rerank):
            rankings = self._list(part.first, max(k, part.depth))
            scores = self._scores(part, rankings)
            return [list(map(fusion.reordered, rankings, scores, repeat(weight))) for weight in weights]
        if ranks_all(part):
            fused = fusion.Fused(self._pool(part.first), self._pool(part.second), self.task.left_out)
            return [self.task.first(rankings, k) for rankings in fused.rank(k, weights)]
        lists = self._list(part.first, k), self._list(part.second, k)
        return [list(map(fusion.fuse_lists, *lists, repeat(weight))) for weight in weights]

    def _pool(self, part: Expression) -> ScoresAll:
        """Return what scores the whole pool."""
        if isinstance(part, Leaf):
            return self._encode(part)
        assert isinstance(part, Fuse)
        sides = self._pool(part.first), self._pool(part.second)
        return fusion.Fused(*sides, self.task.left_out, self.choices[part].weight)

    def _encode(self, leaf: Leaf) -> System:
        """Encode or index the task's texts."""
        if leaf not in self._encoded:
            same_pool = [parts for parts in self.beside if parts.task.pool == self.task.pool]
            encoded = next((parts._encoded[leaf] for parts in same_pool if leaf in parts._encoded), None)
            with self._timed(leaf):
                self._encoded[leaf] = self.systems.rankers[leaf].system(self.task, encoded)
        return self._encoded[leaf]

    def _scores(self, part: Rerank, rankings: Rankings) -> list[np.ndarray]:
        """Score what is re-ranked; with what the scorer has encoded, where it ranks the whole pool, too."""
        ranker, lists = self.systems.rankers[part.second], [ranked.documents[: part.depth] for ranked in rankings]
        passes = sum(ranker.passes(len(documents)) for documents in lists)
        self._costs[part] = {"passes": round(passes / len(lists), 1)}
        if part.second in self._whole:
            return list(map(self._encode(part.second).of, range(len(lists)), lists))
        scored = [
            (query, [self.task.pool[i] for i in documents.tolist()])
            for query, documents in zip(self.task.queries, lists, strict=True)
            if len(documents)
        ]
        if not scored:
            return [NOTHING.scores] * len(lists)
        scores = iter(ranker.scores(scored, "re-rank"))
        self._costs[part]["position_bias"] = ranker.position_bias
        if ranker.passes_made is not None:
            self._costs[part]["passes"] = round(ranker.passes_made * len(scored) / len(lists), 1)
        return [next(scores) if len(documents) else NOTHING.scores for documents in lists]

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
