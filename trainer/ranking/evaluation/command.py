"""What `trainer.evaluate` does, once its arguments are read: check all, rank, write the file, print the table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import make_directory, refuse_folder
from deepsiam.trainer.ranking.evaluation import run_file
from deepsiam.trainer.ranking.evaluation.candidate_lists import CandidateTask, compare_lists
from deepsiam.trainer.ranking.evaluation.classes import compare_classes, read_classes
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import Given, Leaf, is_run_file, read_systems, walk
from deepsiam.trainer.ranking.evaluation.many_collections import compare_many
from deepsiam.trainer.ranking.evaluation.metrics import more_metrics
from deepsiam.trainer.ranking.evaluation.results_file import write_results
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.table import table
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, shared_by
from deepsiam.trainer.training.engine.world import failed_rank_exits_first, joined, rank_0_speaks, say


def evaluate(arguments: argparse.Namespace) -> None:
    """Evaluate the systems that the arguments of `trainer.evaluate` name, on all ranks together."""
    split, identical_ids = arguments.split, arguments.ignore_identical_ids
    with failed_rank_exits_first():
        require("evaluate", "bm25s", "ir_measures", "pytrec_eval")
        world = joined()
        with rank_0_first(world.rank, world.size):
            named_systems = read_systems(arguments.system)
            if arguments.candidates or arguments.classes:
                _require_models(arguments, named_systems)
            metrics = more_metrics(arguments.metrics or [], "--metrics")
        if arguments.collections:
            compare_many(arguments, named_systems, metrics, world)
            return
        with rank_0_first(world.rank, world.size):
            collection = Collection.open(arguments.collection)
            if arguments.write_runs:
                _require_other_files(arguments.write_runs, named_systems)
            if arguments.candidates:  # raise for a wrong split before loading a model
                CandidateTask.of(collection, split, identical_ids)
            elif arguments.classes:
                read_classes(collection, split)
            else:
                task = Task.of(collection, split, identical_ids)
                if arguments.write_runs:
                    names = chain(task.qrels, map(task.name, range(len(task.pool))))
                    run_file.check_ids(f"--write-runs {arguments.write_runs}", names)
            refuse_folder(arguments.out)
            for folder in filter(None, (arguments.out.parent, arguments.write_runs)):
                make_directory(folder)
            systems = Systems.open(collection, named_systems, arguments.precision, arguments.dimensions)
            if not (arguments.candidates or arguments.classes):
                systems.check(split)
        with rank_0_speaks(world.rank), shared_by(world.rank, world.size):
            say(*dict.fromkeys(ranker.note for ranker in systems.rankers.values() if ranker.note))
            if arguments.candidates:
                results = compare_lists(systems, split, identical_ids)
            elif arguments.classes:
                results = compare_classes(systems, split)
            else:
                write_runs = arguments.write_runs if world.rank == 0 else None
                results = compare(systems, split, write_runs, metrics, identical_ids)
        if world.rank == 0:
            write_results(arguments.out, results)
            print("\n".join(table(results, arguments.all_pairs)))


def _require_other_files(folder: Path, named_systems: Sequence[Given]) -> None:
    """Raise InputError where a system's run file would be written over one that a system reads."""
    run_files = {(folder / f"{system.name}.trec").resolve() for system in named_systems}
    for system in named_systems:
        for part in walk(system.expression):
            if isinstance(part, Leaf) and is_run_file(part) and Path(part.path).resolve() in run_files:
                raise InputError(
                    f"--system '{system.text}': --write-runs {folder} would write over {part.path}: name another folder"
                )


def _require_models(arguments: argparse.Namespace, named_systems: Sequence[Given]) -> None:
    """Raise InputError for what needs a ranking of the whole pool, with --candidates or --classes."""
    if arguments.candidates and arguments.classes:
        raise InputError("--candidates and --classes measure different things: leave out one")
    task = "--candidates" if arguments.candidates else "--classes"
    for option, value in (("--metrics", arguments.metrics), ("--write-runs", arguments.write_runs)):
        if value:
            raise InputError(f"{option} is for rankings of the whole pool: leave it out, or {task}")
    for system in named_systems:
        if not isinstance(system.expression, Leaf) or is_run_file(system.expression):
            raise InputError(f"--system '{system.text}': {task} is for single models: leave it out, or {task}")
