"""Rank a collection with systems, and compare them in one table: `evaluate`, which `trainer.evaluate` calls, too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from deepsiam.data_prep.collections.collection import Collection as OpenedCollection
from deepsiam.data_prep.collections.relevant import IdenticalIds
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import make_directory, refuse_folder
from deepsiam.trainer.interface.collection import Collection
from deepsiam.trainer.interface.model import Model, Precision, load
from deepsiam.trainer.ranking.evaluation import run_file
from deepsiam.trainer.ranking.evaluation.candidate_lists import CandidateTask, compare_lists
from deepsiam.trainer.ranking.evaluation.classes import compare_classes, read_classes
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import Given, Leaf, is_run_file, quoted, read_systems, walk
from deepsiam.trainer.ranking.evaluation.many_collections import models_of
from deepsiam.trainer.ranking.evaluation.metrics import more_metrics
from deepsiam.trainer.ranking.evaluation.results_file import Results, write_results
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.table import table
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, shared_by
from deepsiam.trainer.training.engine.world import failed_rank_exits_first, joined, rank_0_speaks, say

if TYPE_CHECKING:
    import pandas

SystemsByName = Mapping[str, str | os.PathLike[str] | Model]


class Evaluation:
    """What `evaluate` has measured; printed, it is the table of trainer.evaluate.

    Attributes:
        results: all numbers, as in the JSON file of trainer.evaluate: systems, their stages, the tests of pairs.
    """

    def __init__(self, results: Results) -> None:
        self.results = results

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__

    def table(self, *, all_pairs: bool = False) -> str:
        """Return the table with its conditions; with `all_pairs`, also how each pair of systems differs."""
        return "\n".join(table(self.results, all_pairs))

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Each system's means over the queries, by the name of the metric, such as `ndcg@10`."""
        return {name: dict(system.metrics) for name, system in self.results.systems.items()}

    def to_pandas(self) -> pandas.DataFrame:
        """Return `metrics` as a frame with a row for each system; raise InputError where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs a package that is not installed: run: pip install pandas") from None
        return pandas.DataFrame.from_dict(self.metrics, orient="index")


def evaluate(
    collection: Collection | str | os.PathLike[str],
    systems: SystemsByName | Sequence[str],
    split: str = "test",
    *,
    metrics: Sequence[str] = (),
    candidates: bool = False,
    classes: bool = False,
    ignore_identical_ids: IdenticalIds = "auto",
    dimensions: int | None = None,
    precision: Precision | None = None,
    write_runs: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Rank a split's queries with each system, and compare these; on several ranks, all must call this.

    Args:
        collection: or its folder.
        systems: what each name stands for: a `Model`, a path, or a text as `trainer.evaluate --system` takes it, with
            the names before: `{"bm25": "bm25", "mine": model, "both": "fuse(bm25, mine)"}`. Or a list of such options.
        split: which judgements.
        metrics: more than the usual ones, such as `map@1000`.
        candidates: rank the candidates that the split gives for each query, not the pool.
        classes: predict the classes of the split's pairs instead of ranking.
        ignore_identical_ids: leave the document with the query's id out of its ranking, as BEIR does; auto: where it is
            the same text.
        dimensions: rank by the first numbers of the vectors of models of one vector per text.
        precision: what models compute in that are given by paths, `fp32` or `bf16`.
        write_runs: a folder for each system's ranking, as a TREC run file.
        out: a JSON file for the results.

    Raises:
        InputError: a system is not of the language, is no model, or cannot rank this collection; raised before anything
            is ranked. Messages call arguments by the command's options.
    """
    runs, results_file = (Path(path) if path is not None else None for path in (write_runs, out))
    options, models = _options(systems)
    with failed_rank_exits_first():
        require("evaluate", "bm25s", "ir_measures", "pytrec_eval")
        world = joined()
        with rank_0_first(world.rank, world.size):
            named_systems = read_systems(options)
            if candidates and classes:
                raise InputError("--candidates and --classes measure different things: leave out one")
            if candidates or classes:
                _require_models(named_systems, "--classes" if classes else "--candidates", metrics, runs)
            extra_metrics = more_metrics(metrics, "--metrics")
            opened = _opened(collection, named_systems, models, precision)
            if runs:
                _require_other_files(runs, named_systems)
            if candidates:  # raise for a wrong split before loading a model
                CandidateTask.of(opened, split, ignore_identical_ids)
            elif classes:
                read_classes(opened, split)
            else:
                task = Task.of(opened, split, ignore_identical_ids)
                if runs:
                    names = chain(task.qrels, map(task.name, range(len(task.pool))))
                    run_file.check_ids(f"--write-runs {runs}", names)
            if results_file:
                refuse_folder(results_file)
            for folder in filter(None, (results_file and results_file.parent, runs)):
                make_directory(folder)
            rankers = {path: model.ranker for path, model in models.items()}
            opened_systems = Systems.open(opened, named_systems, precision, dimensions, rankers)
            if not (candidates or classes):
                opened_systems.check(split)
        with rank_0_speaks(world.rank), shared_by(world.rank, world.size):
            say(*dict.fromkeys(ranker.note for ranker in opened_systems.rankers.values() if ranker.note))
            if candidates:
                results = compare_lists(opened_systems, split, ignore_identical_ids)
            elif classes:
                results = compare_classes(opened_systems, split)
            else:
                written_runs = runs if world.rank == 0 else None
                results = compare(opened_systems, split, written_runs, extra_metrics, ignore_identical_ids)
        if results_file and world.rank == 0:
            write_results(results_file, results)
    return Evaluation(results)


def _options(systems: SystemsByName | Sequence[str]) -> tuple[list[str], dict[str, Model]]:
    """Return systems as options of the command, and the models among them by their paths."""
    if not isinstance(systems, Mapping):
        return list(systems), {}
    options, models = list[str](), dict[str, Model]()
    for name, system in systems.items():
        if isinstance(system, Model):
            if models.setdefault(str(system.path), system) is not system:
                raise InputError(f"systems: {system.path} was loaded twice: give the same model under both names")
            system = system.path
        text = system if isinstance(system, str) else quoted(os.fspath(system), word=False)
        options.append(text if text == name else f"{name}={text}")
    return options, models


def _opened(
    collection: Collection | str | os.PathLike[str],
    named_systems: Sequence[Given],
    models: dict[str, Model],
    precision: Precision | None,
) -> OpenedCollection:
    """Open a collection; one of texts as the first model reads them: it is loaded, and added to `models`."""
    if not isinstance(collection, Collection):
        return OpenedCollection.open(Path(collection))
    paths = models_of(named_systems)
    if not (collection.is_of_texts and paths):
        return collection.read_by(None)
    if paths[0] not in models:
        models[paths[0]] = load(paths[0], precision=precision)
    return collection.read_by(models[paths[0]].tokenizer)


def _require_other_files(folder: Path, named_systems: Sequence[Given]) -> None:
    """Raise InputError where a system's run file would be written over one that a system reads."""
    run_files = {(folder / f"{system.name}.trec").resolve() for system in named_systems}
    for system in named_systems:
        for part in walk(system.expression):
            if isinstance(part, Leaf) and is_run_file(part) and Path(part.path).resolve() in run_files:
                raise InputError(
                    f"--system '{system.text}': --write-runs {folder} would write over {part.path}: name another folder"
                )


def _require_models(named_systems: Sequence[Given], task: str, metrics: Sequence[str], runs: Path | None) -> None:
    """Raise InputError for what needs a ranking of the whole pool, with --candidates or --classes."""
    for option, value in (("--metrics", metrics), ("--write-runs", runs)):
        if value:
            raise InputError(f"{option} is for rankings of the whole pool: leave it out, or {task}")
    for system in named_systems:
        if not isinstance(system.expression, Leaf) or is_run_file(system.expression):
            raise InputError(f"--system '{system.text}': {task} is for single models: leave it out, or {task}")
