"""Compare systems that rank a split's queries over its pool of documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from models.config import MatchingConfig
from trainer.checkpoints.load import LoadedModel
from trainer.retrieval import fusion
from trainer.retrieval.metrics import DEPTH, Metrics, p_value
from trainer.retrieval.rerank import Rerank, rerank_task
from trainer.retrieval.search import Ranked
from trainer.retrieval.system import System
from trainer.retrieval.task import Task, about_models, embed_task, index_task, matching_of, require_scores, searches

Builders = Mapping[str, Callable[[Task], System]]  # how each system encodes or indexes the texts of a task


class Fusion(NamedTuple):
    """What `--fuse` asks for."""

    systems: tuple[str, str]  # their names
    split: str | None  # where the weight is chosen; None: reciprocal ranks


def compare(
    collection: Collection,
    split: str,
    models: Mapping[str, LoadedModel],
    with_bm25: bool,
    fuse: Fusion | None = None,
    rerank: Rerank | None = None,
) -> dict[str, Any]:
    """Evaluate every system: its mean metrics, the last two models' p-value, and what was ranked, as JSON values.

    Models that cannot search rank again what `rerank` names, by default BM25's first 100.

    Raises:
        InputError: a model cannot rank the collection, or not in the way that is asked for; before the first is
            evaluated.
    """
    methods = {name: matching_of(trained, collection)[1] for name, trained in models.items()}
    rerankers = {name: trained for name, trained in models.items() if not searches(trained, collection)}
    _check(rerankers, methods, fuse, rerank)
    rerank = rerank or Rerank()
    builders: Builders = {
        **({"bm25": index_task} if with_bm25 or (rerankers and rerank.system == "bm25") else {}),
        **{name: partial(embed_task, trained) for name, trained in models.items() if name not in rerankers},
    }
    task = Task.of(collection, split)
    weight = _weight(collection, fuse, builders) if fuse else None
    metrics = _measure(task, builders, fuse, weight, rerankers, rerank)
    rows = [*(["bm25"] if with_bm25 else []), *models, *(["fused"] if fuse else [])]
    return {
        **{name: metrics[name].means for name in rows},
        "p_value": p_value(metrics, list(models), "mrr@10"),
        "queries": len(task.queries),
        "corpus": len(task.pool),
        **about_models(collection, split, models),
        **({"rerank": {name: rerank._asdict() for name in rerankers}} if rerankers else {}),
        **(_about_fusion(fuse, weight, metrics) if fuse else {}),
    }


def _check(
    rerankers: Mapping[str, LoadedModel],
    methods: Mapping[str, MatchingConfig],
    fuse: Fusion | None,
    rerank: Rerank | None,
) -> None:
    """Raise InputError for models that cannot search where they cannot do what is asked for either."""
    for name, trained in rerankers.items():
        require_scores(trained, methods[name])
        if fuse and name in fuse.systems:
            raise InputError(
                f"--fuse {'+'.join(fuse.systems)}: {name} scores only the documents that it ranks again: "
                "fuse two systems that score all of them"
            )
    if rerank and rerank.system in rerankers:
        raise InputError(f"--rerank {rerank}: {rerank.system} ranks again itself: name bm25, or a model that searches")
    if rerank and not rerankers:
        raise InputError(f"--rerank {rerank}: every model of this command can search: leave it out")


def _weight(collection: Collection, fuse: Fusion, builders: Builders) -> float | None:
    """The weight of the second system, chosen on another split's own queries and pool; None for reciprocal ranks."""
    if fuse.split is None:
        return None
    task = Task.of(collection, fuse.split)
    first, second = (builders[name](task) for name in fuse.systems)
    return fusion.choose_weight(first, second, task.measure)


def _measure(
    task: Task,
    builders: Builders,
    fuse: Fusion | None,
    weight: float | None,
    rerankers: Mapping[str, LoadedModel],
    rerank: Rerank,
) -> dict[str, Metrics]:
    """The metrics of what searches, of what ranks again, and last of `fused`; every text is encoded once."""
    metrics: dict[str, Metrics] = {}
    to_fuse: dict[str, System] = {}
    found: list[Ranked] = []
    for name, build in builders.items():
        system = build(task)
        ranked = system.rank(max(DEPTH, rerank.documents) if name == rerank.system else DEPTH)
        metrics[name] = task.measure(ranked)
        if name == rerank.system:
            found = ranked
        if fuse and name in fuse.systems:
            to_fuse[name] = system
        del system  # the embeddings of one encoder are freed before those of the next are made
    for name, trained in rerankers.items():
        metrics[name] = task.measure(rerank_task(trained, task, found, rerank.documents))
    if fuse:
        first, second = (to_fuse[name] for name in fuse.systems)
        (ranked,) = fusion.rank(first, second, [weight], DEPTH)
        metrics["fused"] = task.measure(ranked)
    return metrics


def _about_fusion(fuse: Fusion, weight: float | None, metrics: Mapping[str, Metrics]) -> dict[str, Any]:
    """How the row `fused` was made, and its p-value against BM25 where that is one of the two, as JSON values."""
    rule = "reciprocal ranks" if weight is None else "standardised"
    return {
        "p_value_bm25": p_value(metrics, ["bm25", "fused"], "mrr@10") if "bm25" in fuse.systems else None,
        "fusion": {"systems": list(fuse.systems), "rule": rule, "weight": weight, "split": fuse.split},
    }
