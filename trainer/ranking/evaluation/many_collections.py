"""Compare systems on many collections: find them, keep the results of each, and print one table of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path

import numpy as np

from data_prep.collections.build import build
from data_prep.collections.collection import Collection, is_collection
from data_prep.collections.formats.beir import Beir
from data_prep.common.errors import InputError
from trainer.ranking.evaluation.expression import NO_PATHS, Given
from trainer.ranking.evaluation.metrics import ROUNDS, Metric, paired_permutation_test
from trainer.ranking.evaluation.results_file import Results, read_results
from trainer.ranking.evaluation.systems import is_run_file, leaves
from trainer.ranking.evaluation.table import title
from trainer.ranking.evaluation.task import Task
from trainer.ranking.published import load_any
from trainer.training.checkpoints import checkpoint

METRIC = "ndcg@10"  # BEIR's; every metric of --metrics has a table of its own


def find(pattern: str) -> dict[str, Path]:
    """Return the collections and BEIR folders that match a pattern, by the names of their folders.

    Raises:
        InputError: there are none, or two have the same name.
    """
    found: dict[str, Path] = {}
    for path in map(Path, sorted(glob(pattern))):
        if is_collection(path) or (path.is_dir() and Beir([path]).files()[0].is_file()):
            if path.name in found:
                raise InputError(f"--collections: {found[path.name]} and {path} have the same name: rename one")
            found[path.name] = path
    if not found:
        raise InputError(f"--collections {pattern!r}: matches no collection and no folder with a corpus.jsonl")
    return found


def prepare(folders: Mapping[str, Path], given: Sequence[Given], out: Path) -> dict[str, Collection]:
    """Open the collections; tokenise those that are only in BEIR's layout into `out`, as the first model reads them.

    Raises:
        InputError: a folder is damaged, or there is no model that reads it.
    """
    raw = {name: path for name, path in folders.items() if not is_collection(path) and not is_collection(out / name)}
    if raw:
        every = [leaf for system in given for leaf in leaves(system.expression)]
        models = [leaf.path for leaf in every if leaf.path not in NO_PATHS and not is_run_file(leaf)]
        if not models:
            name, path = next(iter(raw.items()))
            raise InputError(
                f"{path}: is not tokenised, and no system has a tokenizer: add a model, or run "
                f"python -m data_prep collection beir {path} --out NEW/{name} --tokenizer TOKENIZER"
            )
        tokenizer = load_any(Path(models[0])).tokenizer
        for name, path in raw.items():
            build("beir", [path], out / name, tokenizer)
    return {name: Collection.open(path if is_collection(path) else out / name) for name, path in folders.items()}


def require_relevant(collection: Collection, split: str) -> None:
    """Raise InputError where a split has no relevant document, or none in its pool."""
    task = Task.of(collection, split)
    pool = set(map(task.name, range(len(task.pool))))
    if not any(grade > 0 and name in pool for judged in task.qrels.values() for name, grade in judged.items()):
        raise InputError(f"{collection.directory}: the pool of split {split} has no relevant document: leave it out")


def finished(file: Path, given: Sequence[Given], split: str, metrics: Sequence[str]) -> Results | None:
    """Read the results of a collection that was finished before; None if it was not.

    Raises:
        InputError: they are of other systems, another split, other metrics, or an earlier checkpoint.
    """
    if not file.is_file():
        return None
    results = read_results(file)
    systems = {name: system.expression for name, system in results.systems.items()}
    same = systems == {system.name: str(system.expression) for system in given}
    if not same or (results.about.split, results.about.metrics) != (split, [*metrics]) or results.values is None:
        raise InputError(f"{file}: of other systems, metrics or another split: remove it, or name another --out")
    for system in results.systems.values():
        for stage in system.stages:
            is_run = stage.model and stage.checkpoint and stage.checkpoint != stage.model
            if is_run and str(checkpoint.find(Path(str(stage.model)))) != stage.checkpoint:
                raise InputError(f"{file}: of {stage.checkpoint}, and the run has a newer one: remove the file")
    return results


def table(of_collections: Mapping[str, Results], metric: str) -> Iterator[str]:
    """Yield the lines of a metric's table, with the p-value of each system's mean against the first one's."""
    baseline, *others = systems = [*next(iter(of_collections.values())).systems]
    values = {name: _weighted(of_collections, name, metric) for name in systems}
    width = max(len(title(name)) for name in systems)
    headings = [*of_collections, "mean", "p"]
    columns = [max(10, len(heading)) for heading in headings]
    cells = [headings]
    for name in systems:
        means = [results.systems[name].metrics[metric] for results in of_collections.values()]
        p_value = paired_permutation_test(values[name], values[baseline]) if name in others else None
        cells.append([f"{mean:.4f}" for mean in (*means, np.mean(means))] + [f"{p_value:.4f}" if p_value else ""])
    for name, row in zip(["", *map(title, systems)], cells, strict=True):
        line = "".join(f"  {cell:>{column}}" for cell, column in zip(row, columns, strict=True))
        yield f"{name:<{width}}{line}".rstrip()
    queries = sum(results.about.queries for results in of_collections.values())
    yield f"{Metric.of(metric).title}; every collection counts the same in the mean"
    if others:
        yield (
            f"p: of the difference of the mean from that of {title(baseline)}, over all {queries:,} queries "
            f"(paired permutation test, two-sided, {ROUNDS:,} flips)"
        )


def _weighted(of_collections: Mapping[str, Results], name: str, metric: str) -> np.ndarray:
    """Return the values of all queries, fp64, so weighted that their sum is the mean over the collections."""
    parts = []
    for results in of_collections.values():
        assert results.values is not None
        values = np.array(results.values[name][metric])
        parts.append(values / len(values) / len(of_collections))
    return np.concatenate(parts)
