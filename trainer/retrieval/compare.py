"""Compare systems that rank a split's queries over its pool of documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from models.config import MatchingConfig
from trainer.checkpoints.load import LoadedModel
from trainer.retrieval import fusion, run_file
from trainer.retrieval.metrics import DEPTH, Metrics, p_value
from trainer.retrieval.rerank import Rerank, rerank_task
from trainer.retrieval.run_file import RunFile
from trainer.retrieval.search import Ranked
from trainer.retrieval.significance import every_pair
from trainer.retrieval.system import System
from trainer.retrieval.task import Task, about_models, embed_task, index_task, matching_of, require_scores, searches

Builders = Mapping[str, Callable[[Task], System | RunFile]]  # how each system encodes or indexes a task's texts


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
    runs: Mapping[str, Path] | None = None,
    write_runs: Path | None = None,
) -> dict[str, Any]:
    """Evaluate every system: its mean metrics, how each pair of them differs, and what was ranked, as JSON values.

    Models that cannot search rank again what `rerank` names, by default BM25's first 100.

    Args:
        collection: has the texts and the judgements.
        split: names the queries.
        models: by name.
        with_bm25: also evaluate BM25.
        fuse: also evaluate two systems as one.
        rerank: what is ranked again.
        runs: run files by name, which are systems, too, but score only what they list.
        write_runs: a folder for a run file of each system.

    Raises:
        InputError: a model cannot rank the collection, or not in the way that is asked for; before the first is
            evaluated.
    """
    methods = {name: matching_of(trained, collection)[1] for name, trained in models.items()}
    rerankers = {name: trained for name, trained in models.items() if not searches(trained, collection)}
    runs = runs or {}
    _check(rerankers, methods, fuse, rerank, runs)
    rerank = rerank or Rerank()
    builders: Builders = {
        **({"bm25": index_task} if with_bm25 or (rerankers and rerank.system == "bm25") else {}),
        **{name: partial(run_file.read, path) for name, path in runs.items()},
        **{name: partial(embed_task, trained) for name, trained in models.items() if name not in rerankers},
    }
    task = Task.of(collection, split)
    weight = _weight(collection, fuse, builders) if fuse else None
    rankings, remarks = _rank(task, builders, fuse, weight, rerankers, rerank)
    rows = [*(["bm25"] if with_bm25 else []), *runs, *models, *(["fused"] if fuse else [])]
    metrics = {name: task.measure(rankings[name]) for name in rows}
    if write_runs:
        for name in rows:
            run_file.write(write_runs / f"{name}.trec", task, rankings[name], name)
    return {
        **{name: metrics[name].means for name in rows},
        "p_value": p_value(metrics, list(models), "mrr@10"),
        "pairs_of_systems": every_pair(metrics, rows, "mrr@10"),
        **({"run_files": {name: str(path) for name, path in runs.items()}, "remarks": remarks} if runs else {}),
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
    runs: Mapping[str, Path],
) -> None:
    """Raise InputError for models that cannot search where they cannot do what is asked for either."""
    for name, trained in rerankers.items():
        require_scores(trained, methods[name])
        if fuse and name in fuse.systems:
            raise InputError(
                f"--fuse {'+'.join(fuse.systems)}: {name} scores only the documents that it ranks again: "
                "fuse two systems that score all of them"
            )
    for name in set(runs).intersection(fuse.systems if fuse else ()):
        raise InputError(
            f"--fuse {'+'.join(fuse.systems if fuse else ())}: {name} is a run file, which scores only what it lists: "
            "fuse two systems that score all documents"
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
    first, second = (_scoring(builders[name](task)) for name in fuse.systems)
    return fusion.choose_weight(first, second, task.measure)


def _scoring(system: System | RunFile) -> System:
    assert not isinstance(system, RunFile)  # `_check` refuses to fuse them
    return system


def _rank(
    task: Task,
    builders: Builders,
    fuse: Fusion | None,
    weight: float | None,
    rerankers: Mapping[str, LoadedModel],
    rerank: Rerank,
) -> tuple[dict[str, list[Ranked]], list[str]]:
    """The rankings of what searches, of what ranks again, and last of `fused`; remarks on run files.

    Every text is encoded once.
    """
    rankings: dict[str, list[Ranked]] = {}
    remarks: list[str] = []
    to_fuse: dict[str, System] = {}
    for name, build in builders.items():
        system = build(task)
        rankings[name] = system.rank(max(DEPTH, rerank.documents) if name == rerank.system else DEPTH)
        if isinstance(system, RunFile):
            remarks += system.remarks
        elif fuse and name in fuse.systems:
            to_fuse[name] = system
        del system  # the embeddings of one encoder are freed before those of the next are made
    for name, trained in rerankers.items():
        rankings[name] = rerank_task(trained, task, rankings[rerank.system], rerank.documents)
    if fuse:
        first, second = (to_fuse[name] for name in fuse.systems)
        (rankings["fused"],) = fusion.rank(first, second, [weight], DEPTH)
    return rankings, remarks


def _about_fusion(fuse: Fusion, weight: float | None, metrics: Mapping[str, Metrics]) -> dict[str, Any]:
    """How the row `fused` was made, and its p-value against BM25 where that is one of the two, as JSON values."""
    rule = "reciprocal ranks" if weight is None else "standardised"
    return {
        "p_value_bm25": p_value(metrics, ["bm25", "fused"], "mrr@10") if "bm25" in fuse.systems else None,
        "fusion": {"systems": list(fuse.systems), "rule": rule, "weight": weight, "split": fuse.split},
    }
