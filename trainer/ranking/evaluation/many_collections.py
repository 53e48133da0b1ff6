"""Compare systems on many collections: find them, keep the results of each, and print one table of all."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection, is_collection
from deepsiam.data_prep.collections.formats.beir import Beir
from deepsiam.data_prep.collections.relevant import IdenticalIds
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import make_directory, sha256_of
from deepsiam.data_prep.tokenizers.check import require_same_tokenizer
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import NO_PATHS, Given, is_run_file, leaves, read_systems
from deepsiam.trainer.ranking.evaluation.metrics import ROUNDS, Metric, more_metrics, paired_permutation_test
from deepsiam.trainer.ranking.evaluation.results_file import Results, SystemStage, read_results, write_results
from deepsiam.trainer.ranking.evaluation.systems import Systems, contents_sha256
from deepsiam.trainer.ranking.evaluation.table import title
from deepsiam.trainer.ranking.evaluation.task import has_relevant
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.ranker import usual_precision
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, shared_by
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.engine.device import this_device
from deepsiam.trainer.training.engine.world import World, failed_rank_exits_first, joined, rank_0_speaks

METRIC = "ndcg@10"  # BEIR's; every metric of --metrics has a table of its own
PREPARED = "collections"  # in the folder of results: the collections made of folders in BEIR's layout


def evaluate_many(arguments: argparse.Namespace) -> None:
    """Do what the arguments of `trainer.evaluate --collections` ask for, on all ranks together."""
    with failed_rank_exits_first():
        require("evaluate", "bm25s", "ir_measures", "pytrec_eval")
        world = joined()
        with rank_0_first(world.rank, world.size):
            named_systems = read_systems(arguments.system)
            metrics = more_metrics(arguments.metrics or [], "--metrics")
        _compare_many(arguments, named_systems, metrics, world)


def _compare_many(
    arguments: argparse.Namespace, named_systems: list[Given], metrics: Sequence[str], world: World
) -> None:
    """Rank each collection that has no results yet; print one table of all."""
    out, split, rule, precision = arguments.out, arguments.split, arguments.ignore_identical_ids, arguments.precision
    with rank_0_first(world.rank, world.size):
        folders = find(arguments.collections)
        if out.is_file():
            raise InputError(f"{out}: is a file: with --collections, name a folder for the results of each")
        make_directory(out)
        collections = prepare(folders, named_systems, out / PREPARED)
        check(collections, named_systems, split)
        results = {}
        for name, collection in collections.items():
            if (file := out / f"{name}.json").is_file():
                results[name] = finished(file, named_systems, collection, split, metrics, rule, precision)
    for name, collection in collections.items():
        if name in results:
            continue
        with rank_0_first(world.rank, world.size):
            systems = Systems.open(collection, named_systems, precision)
            systems.check(split)
        with rank_0_speaks(world.rank), shared_by(world.rank, world.size):
            results[name] = compare(systems, split, metrics=metrics, identical_ids=rule, by_query=True)
        del systems  # before the next collection's models are loaded beside these
        if world.rank == 0:
            write_results(out / f"{name}.json", results[name])
            print(f"{name}: done, {out / f'{name}.json'}", flush=True)
    if world.rank == 0:
        in_order, names = {name: results[name] for name in folders}, [system.name for system in named_systems]
        for metric in dict.fromkeys((METRIC, *(arguments.metrics or []))):
            print("\n".join(table(in_order, names, metric)))


def find(pattern: str) -> dict[str, Path]:
    """Return the collections and BEIR folders that match a pattern, by the names of their folders.

    Raises:
        InputError: there are none, or two have the same name.
    """
    folders: dict[str, Path] = {}
    for path in map(Path, sorted(glob(pattern))):
        if is_collection(path) or (path.is_dir() and Beir([path]).paths[0].is_file()):
            if path.name in folders:
                raise InputError(f"--collections: {folders[path.name]} and {path} have the same name: rename one")
            folders[path.name] = path
    if not folders:
        raise InputError(f"--collections {pattern!r}: matches no collection and no folder with a corpus.jsonl")
    return folders


def prepare(folders: Mapping[str, Path], named_systems: Sequence[Given], out: Path) -> dict[str, Collection]:
    """Open the collections; tokenise those that are only in BEIR's layout into `out`, as the first model reads them.

    Raises:
        InputError: a folder is damaged, there is no model that reads it, or what was tokenised has changed since.
    """
    copies = {name: path for name, path in folders.items() if not is_collection(path)}
    raw = {name: path for name, path in copies.items() if not is_collection(out / name)}
    for name in copies.keys() - raw.keys():
        made_of = [record["sha256"] for record in Collection.open(out / name).manifest["inputs"]]
        if made_of != list(map(sha256_of, Beir([copies[name]]).paths)):
            raise InputError(f"{out / name}: was made of other files than {copies[name]}: remove it")
    if raw:
        if not (models := models_of(named_systems)):
            name, path = next(iter(raw.items()))
            raise InputError(
                f"{path}: is not tokenised, and no system has a tokenizer: add a model, or run "
                f"python -m data_prep collection beir {path} --out NEW/{name} --tokenizer TOKENIZER"
            )
        tokenizer = load_any(Path(models[0])).tokenizer
        for name, path in raw.items():
            build("beir", [path], out / name, tokenizer)
    return {name: Collection.open(path if is_collection(path) else out / name) for name, path in folders.items()}


def models_of(named_systems: Sequence[Given]) -> list[str]:
    """Return the paths of the models of some systems, in their order."""
    every = [leaf for system in named_systems for leaf in leaves(system.expression)]
    return [leaf.path for leaf in every if leaf.path not in NO_PATHS and not is_run_file(leaf)]


def check(collections: Mapping[str, Collection], named_systems: Sequence[Given], split: str) -> None:
    """Check what does not need the models, before the first is ranked.

    Raises:
        InputError: a split has no relevant document or none to choose a weight on, or the tokenizers differ.
    """
    first_collection, *later_collections = collections.values()
    for collection_after in later_collections if models_of(named_systems) else ():
        names = first_collection.directory, collection_after.tokenizer.fingerprint, collection_after.directory
        require_same_tokenizer(first_collection.tokenizer, *names, "compare these systems on each by itself")
    for collection in collections.values():
        if not has_relevant(collection, split):
            raise InputError(
                f"{collection.directory}: the pool of split {split} has no relevant document: leave it out"
            )
        Systems(collection, list(named_systems), {}).choices(split)


def finished(
    file: Path,
    named_systems: Sequence[Given],
    collection: Collection,
    split: str,
    metrics: Sequence[str],
    identical_ids: IdenticalIds,
    precision: str | None,
) -> Results:
    """Read the results of a collection that was finished before.

    Raises:
        InputError: they are of other systems, texts or options, or a model has other weights now.
    """
    results = read_results(file)
    about, identical = results.about, results.about.ignore_identical_ids
    systems = {name: system.expression for name, system in results.systems.items()}
    rule = identical and identical.rule
    contents = systems, about.collection_sha256, about.split, about.metrics, rule, about.precision
    expressions = {system.name: str(system.expression) for system in named_systems}
    if (
        contents != (expressions, collection.sha256, split, [*metrics], identical_ids, precision)
        or results.values is None
    ):
        raise InputError(f"{file}: of other systems, texts or options: remove it, or name another --out")
    for system in results.systems.values():
        for stage in system.stages:
            if problem := _changed(stage, precision):
                raise InputError(f"{file}: {problem}: remove the file")
    return results


def _changed(stage: SystemStage, precision: str | None) -> str:
    """Return what has changed since a stage was measured; empty where nothing has."""
    for path, digest in (stage.files or {}).items():
        if sha256_of(Path(path)) != digest:
            return f"of {path} as it was, and it differs now"
    if not (stage.model and stage.checkpoint):
        return ""
    model = Path(stage.model)
    checkpoint_now = model if model == Path(stage.checkpoint) else checkpoint.find(model)  # the newest of a run
    if contents_sha256(checkpoint_now) != stage.checkpoint_sha256:
        return f"of {stage.checkpoint} as it was, and {checkpoint_now} differs"
    precision_now = precision or usual_precision(this_device())
    return f"computed in {stage.precision}, not {precision_now}" if stage.precision not in (None, precision_now) else ""


def table(results_by_collection: Mapping[str, Results], systems: Sequence[str], metric: str) -> Iterator[str]:
    """Yield the lines of a metric's table, with the p-value of each system's mean against the first one's."""
    baseline, *systems_after = systems
    values = {name: _weighted(results_by_collection, name, metric) for name in systems}
    width = max(len(title(name)) for name in systems)
    headings = [*results_by_collection, "mean", "p"]
    columns = [max(10, len(heading)) for heading in headings]
    cells = [headings]
    for name in systems:
        means = [results.systems[name].metrics[metric] for results in results_by_collection.values()]
        p_value = paired_permutation_test(values[name], values[baseline]) if name in systems_after else None
        cells.append([f"{mean:.4f}" for mean in (*means, np.mean(means))] + [f"{p_value:.4f}" if p_value else ""])
    for name, row in zip(["", *map(title, systems)], cells, strict=True):
        line = "".join(f"  {cell:>{column}}" for cell, column in zip(row, columns, strict=True))
        yield f"{name:<{width}}{line}".rstrip()
    queries = sum(results.about.queries for results in results_by_collection.values())
    yield f"{Metric.of(metric).title}; every collection counts the same in the mean"
    if systems_after:
        yield (
            f"p: of the difference of the mean from that of {title(baseline)}, over all {queries:,} queries "
            f"(paired permutation test, two-sided, {ROUNDS:,} flips)"
        )


def _weighted(results_by_collection: Mapping[str, Results], name: str, metric: str) -> np.ndarray:
    """Return the values of all queries, fp64, so weighted that their sum is the mean over the collections."""
    parts = []
    for results in results_by_collection.values():
        assert results.values is not None
        values = np.array(results.values[name][metric])
        parts.append(values / len(values) / len(results_by_collection))
    return np.concatenate(parts)
