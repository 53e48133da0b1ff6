"""Compare systems that rank a split's queries over its pool of documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.collections.collection import Collection
from data_prep.collections.relevant import IdenticalIds
from data_prep.common.errors import InputError
from trainer.ranking.evaluation import fusion, pipeline, run_file
from trainer.ranking.evaluation.metrics import DEPTH, Metric, Metrics, compared, p_value
from trainer.ranking.evaluation.pipeline import ALONE, Pipeline, Weights
from trainer.ranking.evaluation.rerank import Rerank, rerank_task
from trainer.ranking.evaluation.run_file import RunFile
from trainer.ranking.evaluation.significance import every_pair
from trainer.ranking.evaluation.task import Task, about_models
from trainer.ranking.ranker import ModelRanker
from trainer.ranking.rankers.bm25 import Bm25Ranker
from trainer.ranking.retrieval.search import Ranked
from trainer.ranking.retrieval.system import System

Builders = Mapping[str, Callable[[Task], System | RunFile]]  # how each system encodes or indexes a task's texts


@dataclass(frozen=True)
class Asked:
    """What to evaluate in addition to models, and how."""

    bm25: bool = False
    runs: Mapping[str, Path] = field(default_factory=dict)  # run files by name: systems that score only what they list
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)  # by name
    fuse: tuple[str, str] | None = None  # two systems as one
    weights_split: str | None = None  # where weights are chosen; None: reciprocal ranks, which need none
    rerank: Rerank | None = None  # what models that cannot search re-rank; by default BM25's first 100
    write_runs: Path | None = None  # a folder for a run file of each system
    metrics: Sequence[str] = ()  # in addition to those of HEADINGS
    identical_ids: IdenticalIds = "auto"  # whether documents with the queries' ids are left out

    @property
    def depth(self) -> int:
        """How many documents of each ranking are measured."""
        return max([DEPTH, *(Metric.of(name).depth for name in self.metrics)])


def compare(collection: Collection, split: str, models: Mapping[str, ModelRanker], asked: Asked) -> dict[str, Any]:
    """Evaluate every system: its mean metrics, how each pair of them differs, and what was ranked, as JSON values.

    A model that is only a later stage of a pipeline is not evaluated by itself.

    Raises:
        InputError: a model cannot rank the collection, or not in the requested way; raised before the first model is
            evaluated.
    """
    check(models, asked)
    first = {line.first for line in asked.pipelines.values()}
    alone = _alone(models, asked)
    rerankers = _rerankers(models, asked)
    by_bm25 = bool(rerankers) and (asked.rerank or Rerank()).system == "bm25"
    builders: Builders = {
        **({"bm25": Bm25Ranker(collection).system} if asked.bm25 or by_bm25 or "bm25" in first else {}),
        **{name: partial(run_file.read, path) for name, path in asked.runs.items()},
        **{name: trained.system for name, trained in alone.items() if name not in rerankers},
    }
    task = Task.of(collection, split, asked.identical_ids)
    weight = _weight(collection, asked, builders)
    weights = _pipeline_weights(collection, asked, builders, models)
    ranked = _rank(task, builders, rerankers, models, asked, weight, weights)
    of_fusion = ["fused"] if asked.fuse else []
    rows = [*(["bm25"] if asked.bm25 else []), *asked.runs, *alone, *asked.pipelines, *of_fusion]
    metrics = {name: task.measure(ranked.rankings[name], asked.metrics) for name in rows}
    if asked.write_runs:
        for name in rows:
            rankings = zip(task.qrels, ranked.rankings[name], strict=True)
            run_file.write(asked.write_runs / f"{name}.trec", rankings, task.name, name)
    return {
        **{name: metrics[name].means for name in rows},
        "p_value": p_value(metrics, compared([*alone], [*asked.pipelines]), "mrr@10"),
        "pairs_of_systems": every_pair(metrics, rows, "mrr@10"),
        **({"run_files": {name: str(path) for name, path in asked.runs.items()}} if asked.runs else {}),
        **({"remarks": ranked.remarks} if asked.runs else {}),
        **({"metrics": list(asked.metrics)} if asked.metrics else {}),
        "queries": len(task.queries),
        "corpus": len(task.pool),
        "ignore_identical_ids": {"rule": asked.identical_ids, "queries": len(task.left_out)},
        **about_models(collection, split, models),
        **({"rerank": {name: (asked.rerank or Rerank())._asdict() for name in rerankers}} if rerankers else {}),
        **(_about_pipelines(asked, ranked.seconds, weights, metrics) if asked.pipelines else {}),
        **(_about_fusion(asked.fuse, asked.weights_split, weight, metrics) if asked.fuse else {}),
    }


def _alone(models: Mapping[str, ModelRanker], asked: Asked) -> dict[str, ModelRanker]:
    """Return the models to evaluate by themselves: all but those that are only later stages of pipelines."""
    later = {name for line in asked.pipelines.values() for name in line.models}
    also = {*(line.first for line in asked.pipelines.values()), *(asked.fuse or ())}
    return {name: trained for name, trained in models.items() if name not in later or name in also}


def _rerankers(models: Mapping[str, ModelRanker], asked: Asked) -> dict[str, ModelRanker]:
    """Return the models of `_alone` that cannot search."""
    return {name: trained for name, trained in _alone(models, asked).items() if not trained.searches}


def check(models: Mapping[str, ModelRanker], asked: Asked) -> None:
    """Raise InputError for systems that cannot be used as requested."""
    rerankers = _rerankers(models, asked)
    fuse, rerank = asked.fuse, asked.rerank
    together = "+".join(fuse or ())
    for name, trained in models.items():
        if name in rerankers or any(name in line.models for line in asked.pipelines.values()):
            trained.require_score()
    for name in rerankers:
        if fuse and name in fuse:
            raise InputError(
                f"--fuse {together}: {name} scores only the documents that it re-ranks: "
                "fuse two systems that score all of them"
            )
    for name in {*asked.runs, *asked.pipelines}.intersection(fuse or ()):
        raise InputError(
            f"--fuse {together}: {name} scores only some documents: fuse two systems that score all of them"
        )
    for name, line in asked.pipelines.items():
        if line.first in rerankers:
            raise InputError(f"--pipeline {name}={line}: {line.first} cannot search: begin with another")
    if rerank and rerank.system in rerankers:
        raise InputError(f"--rerank {rerank}: {rerank.system} only re-ranks: name bm25, or a model that searches")
    if rerank and not rerankers:
        raise InputError(f"--rerank {rerank}: every model of this command can search: leave it out")


def _weight(collection: Collection, asked: Asked, builders: Builders) -> float | None:
    """Choose the second fused system's weight on another split's own queries and pool; None without such a split."""
    if asked.fuse is None or asked.weights_split is None:
        return None
    task = Task.of(collection, asked.weights_split, asked.identical_ids)
    first, second = (_scoring(builders[name](task)) for name in asked.fuse)
    return fusion.choose_weight(first, second, task.measure, task.left_out)


def _pipeline_weights(
    collection: Collection, asked: Asked, builders: Builders, models: Mapping[str, ModelRanker]
) -> dict[str, Weights]:
    """Choose the weights of each pipeline's stages, as `_weight` does.

    A run file covers only one split, so what it found is interpolated by reciprocal ranks.
    """
    weights: dict[str, Weights] = {}
    for name, line in asked.pipelines.items():
        if line.interpolated and asked.weights_split and line.first not in asked.runs:
            task = Task.of(collection, asked.weights_split, asked.identical_ids)
            found = task.rank(builders[line.first](task), line.stages[0].documents)
            weights[name] = pipeline.choose_weights(line, task, found, models, task.measure)
        else:
            weights[name] = [None if stage.interpolated else ALONE for stage in line.stages]
    return weights


def _scoring(system: System | RunFile) -> System:
    assert not isinstance(system, RunFile)  # `check` refuses to fuse run files
    return system


@dataclass
class _Rankings:
    """The rankings of every system."""

    rankings: dict[str, list[Ranked]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)  # of a pipeline's stages, or a system's search
    remarks: list[str] = field(default_factory=list)  # on run files


def _rank(
    task: Task,
    builders: Builders,
    rerankers: Mapping[str, ModelRanker],
    models: Mapping[str, ModelRanker],
    asked: Asked,
    weight: float | None,
    weights: Mapping[str, Weights],
) -> _Rankings:
    """Run the systems that search, then re-rankers, pipelines, and last `fused`; every text is encoded once."""
    ranked, rerank = _Rankings(), asked.rerank or Rerank()
    to_fuse: dict[str, System] = {}
    depth = dict.fromkeys(builders, asked.depth)
    passed_on = ((line.first, line.stages[0].documents) for line in asked.pipelines.values())
    for name, documents in ((rerank.system, rerank.documents), *passed_on):
        depth[name] = max(documents, depth.get(name, asked.depth))
    for name, build in builders.items():
        began = time.monotonic()
        system = build(task)
        ranked.rankings[name] = task.rank(system, depth[name])
        ranked.seconds[name] = [time.monotonic() - began]
        if isinstance(system, RunFile):
            ranked.remarks += system.remarks
        elif asked.fuse and name in asked.fuse:
            to_fuse[name] = system
        del system  # the embeddings of one encoder are freed before those of the next are made
    for name, trained in rerankers.items():
        ranked.rankings[name] = rerank_task(trained, task, ranked.rankings[rerank.system], rerank.documents)
    for name, line in asked.pipelines.items():
        found = ranked.rankings[line.first]
        ranked.rankings[name], seconds = pipeline.run(line, task, found, models, weights[name])
        ranked.seconds[name] = [*ranked.seconds[line.first], *seconds]
    if asked.fuse:
        first, second = (to_fuse[name] for name in asked.fuse)
        (ranked.rankings["fused"],) = fusion.rank(first, second, [weight], asked.depth, task.left_out)
    return ranked


def _split_of(weights: Weights, asked: Asked) -> str | None:
    """Return the split on which weights were chosen; None for reciprocal ranks."""
    return None if None in weights else asked.weights_split


def _about_pipelines(
    asked: Asked, seconds: Mapping[str, Sequence[float]], weights: Mapping[str, Weights], metrics: Mapping[str, Metrics]
) -> dict[str, Any]:
    """Describe each pipeline as JSON values: its stages, the seconds that each took, their weights, its p-value."""
    return {
        "pipelines": {
            name: {
                "stages": line.names,
                "seconds": [round(taken, 3) for taken in seconds[name]],
                **({"weights": weights[name], "split": _split_of(weights[name], asked)} if line.interpolated else {}),
                **({"p_value_bm25": p_value(metrics, ["bm25", name], "mrr@10")} if asked.bm25 else {}),
            }
            for name, line in asked.pipelines.items()
        }
    }


def _about_fusion(
    fuse: tuple[str, str], split: str | None, weight: float | None, metrics: Mapping[str, Metrics]
) -> dict[str, Any]:
    """Describe as JSON values how the row `fused` was made, with its p-value against BM25 where BM25 is fused."""
    rule = "reciprocal ranks" if weight is None else "standardised"
    return {
        "p_value_bm25": p_value(metrics, ["bm25", "fused"], "mrr@10") if "bm25" in fuse else None,
        "fusion": {"systems": list(fuse), "rule": rule, "weight": weight, "split": split},
    }
