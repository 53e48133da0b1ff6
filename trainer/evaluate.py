"""Rank a collection with systems, and compare them in one table.

python -m trainer.evaluate --collection DIR --split test --system bm25 --system mine=RUN --out results.json \\
    --system 'fused=fuse(bm25, mine)' --system 'reranked=fused > 100 RUN'
python -m trainer.evaluate --collections 'beir/*' --split test --system bm25 --system mine=RUN --out FOLDER
deepspeed --hostfile hostfile --module trainer.evaluate ...     the ranks encode and score texts together

The language of systems is that of `trainer.ranking.evaluation.expression`. --candidates ranks the candidates that the
split gives for each query, and --classes classifies its pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import IDENTICAL_IDS
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import make_directory, refuse_folder
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.ranking.evaluation import many_collections, run_file
from deepsiam.trainer.ranking.evaluation.candidate_lists import CandidateTask, compare_lists
from deepsiam.trainer.ranking.evaluation.classes import compare_classes, read_classes
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import Given, Leaf, is_run_file, read_systems, walk
from deepsiam.trainer.ranking.evaluation.metrics import IR_MEASURES, more_metrics
from deepsiam.trainer.ranking.evaluation.results_file import write_results
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.table import table
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.ranker import DIMENSIONS_HELP, PRECISION_HELP, PRECISIONS
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, shared_by
from deepsiam.trainer.training.engine.world import World, failed_rank_exits_first, joined, rank_0_speaks, say

OF_ONE_COLLECTION = ("write_runs", "all_pairs", "candidates", "classes", "dimensions")
PREPARED = "collections"  # in the folder of results: what was in BEIR's layout alone


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.evaluate"), failed_rank_exits_first():
        require("evaluate", "bm25s", "ir_measures", "pytrec_eval")
        world = joined()
        with rank_0_first(world.rank, world.size):
            given = read_systems(arguments.system)
            if arguments.candidates or arguments.classes:
                _require_models(arguments, given)
            metrics, identical_ids = more_metrics(arguments.metrics or [], "--metrics"), arguments.ignore_identical_ids
        if arguments.collections:
            _compare_many(arguments, given, metrics, world)
            return
        with rank_0_first(world.rank, world.size):
            collection = Collection.open(arguments.collection)
            if arguments.write_runs:
                _require_other_files(arguments.write_runs, given)
            _read(collection, arguments)  # raise for a wrong split before loading a model
            refuse_folder(arguments.out)
            for folder in filter(None, (arguments.out.parent, arguments.write_runs)):
                make_directory(folder)
            systems = Systems.open(collection, given, arguments.precision, arguments.dimensions)
            if not (arguments.candidates or arguments.classes):
                systems.check(arguments.split)
        with rank_0_speaks(world.rank), shared_by(world.rank, world.size):
            say(*systems.notes)
            if arguments.candidates:
                results = compare_lists(systems, arguments.split, identical_ids)
            elif arguments.classes:
                results = compare_classes(systems, arguments.split)
            else:
                write_runs = arguments.write_runs if world.rank == 0 else None
                results = compare(systems, arguments.split, write_runs, metrics, identical_ids)
        if world.rank == 0:
            write_results(arguments.out, results)
            print("\n".join(table(results, arguments.all_pairs)))


def _compare_many(arguments: argparse.Namespace, given: list[Given], metrics: Sequence[str], world: World) -> None:
    """Rank each collection that has no results yet; print one table of all."""
    out, split = arguments.out, arguments.split
    with rank_0_first(world.rank, world.size):
        folders = many_collections.find(arguments.collections)
        if out.is_file():
            raise InputError(f"{out}: is a file: with --collections, name a folder for the results of each")
        make_directory(out)
        files = {name: out / f"{name}.json" for name in folders}
        collections = many_collections.prepare(folders, given, out / PREPARED)
        many_collections.check(collections, given, split)
        asked = split, metrics, arguments.ignore_identical_ids, arguments.precision
        earlier = {name: many_collections.finished(files[name], given, of, *asked) for name, of in collections.items()}
    results = {name: found for name, found in earlier.items() if found}
    for name in [name for name in collections if name not in results]:
        with rank_0_first(world.rank, world.size):
            systems = Systems.open(collections[name], given, arguments.precision)
            systems.check(split)
        with rank_0_speaks(world.rank), shared_by(world.rank, world.size):
            ids = arguments.ignore_identical_ids
            results[name] = compare(systems, split, metrics=metrics, identical_ids=ids, by_query=True)
        del systems  # before the next collection's models are loaded beside these
        if world.rank == 0:
            write_results(files[name], results[name])
            print(f"{name}: done, {files[name]}", flush=True)
    if world.rank == 0:
        in_order, names = {name: results[name] for name in folders}, [system.name for system in given]
        for metric in dict.fromkeys((many_collections.METRIC, *(arguments.metrics or []))):
            print("\n".join(many_collections.table(in_order, names, metric)))


def _read(collection: Collection, arguments: argparse.Namespace) -> None:
    """Raise InputError where a split has nothing to measure, or not what the options need."""
    if arguments.classes:
        read_classes(collection, arguments.split)
    elif arguments.candidates:
        CandidateTask.of(collection, arguments.split, arguments.ignore_identical_ids)
    else:
        task = Task.of(collection, arguments.split, arguments.ignore_identical_ids)
        if arguments.write_runs:
            names = chain(task.qrels, map(task.name, range(len(task.pool))))
            run_file.check_ids(f"--write-runs {arguments.write_runs}", names)


def _require_other_files(folder: Path, given: Sequence[Given]) -> None:
    """Raise InputError where a system's run file would be written over one that a system reads."""
    written = {(folder / f"{system.name}.trec").resolve() for system in given}
    for system in given:
        for part in walk(system.expression):
            if isinstance(part, Leaf) and is_run_file(part) and Path(part.path).resolve() in written:
                raise InputError(
                    f"--system '{system.text}': --write-runs {folder} would write over {part.path}: name another folder"
                )


def _require_models(arguments: argparse.Namespace, given: Sequence[Given]) -> None:
    """Raise InputError for what needs a ranking of the whole pool, with --candidates or --classes."""
    if arguments.candidates and arguments.classes:
        raise InputError("--candidates and --classes measure different things: leave out one")
    chosen = "--candidates" if arguments.candidates else "--classes"
    for option in ("metrics", "write_runs"):
        if getattr(arguments, option):
            raise InputError(
                f"--{option.replace('_', '-')} is for rankings of the whole pool: leave it out, or {chosen}"
            )
    for system in given:
        if not isinstance(system.expression, Leaf) or is_run_file(system.expression):
            raise InputError(f"--system '{system.text}': {chosen} is for single models: leave it out, or {chosen}")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="trainer.evaluate",
        description="Rank a collection with systems, and compare them in one table.",
        example="python -m trainer.evaluate --collection data/mine --split test --system bm25 --system mine=runs/mine "
        "--out results.json",
        page="docs/evaluation.md",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--collection", type=Path, help="a collection, as `data_prep collection` made")
    where.add_argument(
        "--collections",
        metavar="PATTERN",
        help="folders such as 'beir/*', tokenised or in BEIR's layout: one table; what has results is not ranked again",
    )
    parser.add_argument("--split", required=True, help="the queries to rank for: qrels/SPLIT.tsv")
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="[NAME=]SYSTEM",
        help="bm25; NAME=PATH of a fine-tuning run, of a folder of sentence-transformers or a cross-encoder, or of a "
        "TREC run file; 'NAME=fuse(A, B)'; 'NAME=A > 100 B': the first 100 of A re-ranked by B, with +B by both "
        "scores; A and B are such systems again, or names of earlier ones; may be repeated",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="NAME@K",
        help=f"more columns: {', '.join(IR_MEASURES)}, each of the first K documents, such as map@1000",
    )
    parser.add_argument(
        "--write-runs", type=Path, metavar="FOLDER", help="write each system's ranking there, as a TREC run file"
    )
    parser.add_argument(
        "--all-pairs",
        action="store_true",
        help="also print how each pair of systems differs, with intervals and corrected p-values",
    )
    parser.add_argument(
        "--candidates",
        action="store_true",
        help="rank the candidates that the split gives for each query, not the pool",
    )
    parser.add_argument(
        "--classes", action="store_true", help="predict the classes of the split's pairs instead of ranking"
    )
    parser.add_argument(
        "--ignore-identical-ids",
        choices=IDENTICAL_IDS,
        default="auto",
        help="leave the document with the query's id out of its ranking, as BEIR does; auto: where it is the same text",
    )
    parser.add_argument("--dimensions", type=positive, metavar="N", help=DIMENSIONS_HELP)
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="the JSON file for the results; of --collections, a folder for a file each",
    )
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # from the launcher; the environment has it too
    arguments = parser.parse_args(argv)
    for option in OF_ONE_COLLECTION if arguments.collections else ():
        if getattr(arguments, option):
            parser.error(f"--{option.replace('_', '-')} needs --collection: name one, or leave it out")
    return arguments


if __name__ == "__main__":
    main()
