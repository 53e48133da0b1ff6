"""Rank a collection with BM25 and trained models and compare them in one table.

python -m trainer.evaluate --collection DIR --split test --bm25 --model NAME=RUN ... --fuse bm25+NAME --out results.json
deepspeed --hostfile hostfile --module trainer.evaluate ...     the ranks encode and score texts together

--candidates ranks the candidates that the split gives for each query, and --classes classifies its pairs.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from data_prep.collections.collection import Collection
from data_prep.collections.relevant import IDENTICAL_IDS
from data_prep.common.errors import InputError, exit_on_input_error
from data_prep.common.extras import require
from data_prep.common.files import make_directory, refuse_folder, whole_file
from data_prep.common.parser import Parser
from trainer.ranking.evaluation import fusion, run_file
from trainer.ranking.evaluation.candidate_lists import CandidateTask, compare_lists
from trainer.ranking.evaluation.classes import compare_classes, read_classes
from trainer.ranking.evaluation.compare import Asked, check, compare
from trainer.ranking.evaluation.metrics import HEADINGS, IR_MEASURES, MOST, Metric
from trainer.ranking.evaluation.pipeline import PLUS, Pipeline, Stage
from trainer.ranking.evaluation.rerank import Rerank
from trainer.ranking.evaluation.table import table
from trainer.ranking.evaluation.task import Task
from trainer.ranking.indexes.ranks import rank_0_first
from trainer.ranking.published import load_any
from trainer.ranking.rankers.registry import ranker_of
from trainer.ranking.retrieval.shared import shared_by
from trainer.training.engine.world import World, failed_rank_exits_first, join, rank_0_speaks

RESERVED = (  # keys of the results
    "bm25",
    "fused",
    "p_value",
    "p_value_bm25",
    "queries",
    "corpus",
    "collection",
    "split",
    "checkpoints",
    "max_tokens",
    "fusion",
    "rerank",
    "lists",
    "lists_left_out",
    "candidates",
    "pairs",
    "classes",
    "majority",
    "majority_class",
    "pairs_of_systems",
    "run_files",
    "pipelines",
    "remarks",
    "metrics",
    "ignore_identical_ids",
)
OF_THE_POOL = (
    "fuse",
    "fuse_split",
    "rerank",
    "run",
    "pipeline",
    "write_runs",
    "all_pairs",
    "metrics",
)  # options that need a ranking of the whole pool


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.evaluate"), failed_rank_exits_first():
        world = World.from_environment()
        require("evaluate", "bm25s", "ir_measures", "pytrec_eval")
        if world.size > 1:
            join(world)
        with rank_0_first(world.rank, world.size):
            _refuse_options_of_the_pool(arguments)
            runs, files = _systems(arguments)
            collection = Collection.open(arguments.collection)
            task = _read(collection, arguments)  # raise for a wrong split before loading a model
            if arguments.write_runs and isinstance(task, Task):
                names = chain(task.qrels, (task.name(i) for i in range(len(task.pool))))
                run_file.check_ids(f"--write-runs {arguments.write_runs}", names)
            asked = _asked(arguments, collection, files, [*runs])
            refuse_folder(arguments.out)
            for folder in filter(None, (arguments.out.parent, arguments.write_runs)):
                make_directory(folder)
            models = {name: ranker_of(load_any(run), collection) for name, run in runs.items()}
            if not (arguments.candidates or arguments.classes):
                check(models, asked)
        with rank_0_speaks(world.rank), shared_by(world.rank, world.size):
            if arguments.candidates:
                results = compare_lists(
                    collection, arguments.split, models, arguments.bm25, arguments.ignore_identical_ids
                )
            elif arguments.classes:
                results = compare_classes(collection, arguments.split, models)
            else:
                asked = asked if world.rank == 0 else replace(asked, write_runs=None)
                results = compare(collection, arguments.split, models, asked)
        if world.rank == 0:
            with whole_file(arguments.out) as file:
                file.write((json.dumps(results, indent=1) + "\n").encode())
            print("\n".join(table(results, [*files, *runs, *asked.pipelines], bool(arguments.all_pairs))))


def _read(collection: Collection, arguments: argparse.Namespace) -> object:
    """Read what a split has to measure; raise InputError where it has nothing of the kind."""
    if arguments.classes:
        return read_classes(collection, arguments.split)
    task = CandidateTask if arguments.candidates else Task
    return task.of(collection, arguments.split, arguments.ignore_identical_ids)


def _systems(arguments: argparse.Namespace) -> tuple[dict[str, Path], dict[str, Path]]:
    """Parse the models and the run files by name."""
    runs = _named(arguments.model, "model", "RUN", ())
    files = _named(arguments.run or [], "run", "FILE", runs)
    if not runs and not files and not arguments.bm25:
        raise InputError("nothing to evaluate: give --bm25, --model NAME=RUN, --run NAME=FILE, or several of them")
    return runs, files


def _asked(
    arguments: argparse.Namespace, collection: Collection, files: dict[str, Path], models: Sequence[str]
) -> Asked:
    """Parse what to evaluate in addition to models, and how."""
    known = ["bm25", *files, *models]
    fuse = _fuse(arguments.fuse, known if arguments.bm25 else known[1:])
    pipelines = _pipelines(arguments.pipeline or [], known, models)
    weighted = fuse is not None or any(line.interpolated for line in pipelines.values())
    return Asked(
        bm25=arguments.bm25,
        runs=files,
        pipelines=pipelines,
        fuse=fuse,
        weights_split=_weights_split(arguments, collection, weighted),
        rerank=_rerank(arguments.rerank, known),
        write_runs=arguments.write_runs,
        metrics=_metrics(arguments.metrics or []),
        identical_ids=arguments.ignore_identical_ids,
    )


def _refuse_options_of_the_pool(arguments: argparse.Namespace) -> None:
    """Raise InputError for options that cannot be combined."""
    if arguments.candidates and arguments.classes:
        raise InputError("--candidates and --classes measure different things: leave out one")
    if not (arguments.candidates or arguments.classes):
        return
    chosen = "--candidates" if arguments.candidates else "--classes"
    for name in OF_THE_POOL:
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} is for rankings of the whole pool: leave it out, or {chosen}")
    if arguments.classes and arguments.bm25:
        raise InputError("--bm25 does not predict classes: leave it out, or --classes")


def _named(given: Sequence[str], option: str, what: str, taken: Container[str]) -> dict[str, Path]:
    """Parse the arguments NAME=PATH of an option: the paths by name."""
    paths: dict[str, Path] = {}
    for argument in given:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise InputError(f"--{option} {argument}: write --{option} NAME={what}")
        if name in RESERVED or name in taken or name in paths:
            raise InputError(f"--{option} {argument}: the name {name!r} is taken: choose another")
        if "/" in name:
            raise InputError(f"--{option} {argument}: a name has no slash, as it may become a file's")
        paths[name] = Path(path)
    return paths


def _fuse(given: str | None, names: Sequence[str]) -> tuple[str, str] | None:
    """Parse `--fuse`; `names` are the systems that are evaluated."""
    if given is None:
        return None
    # a name may contain a plus
    pairs = [(a, b) for a in names for b in names if a != b and f"{a}+{b}" == given]
    if not pairs:
        raise InputError(
            f"--fuse {given}: write two different systems of this command as NAME+NAME; "
            f"it has {', '.join(names)}{'' if 'bm25' in names else ' (bm25 needs --bm25)'}"
        )
    return pairs[0]


def _weights_split(arguments: argparse.Namespace, collection: Collection, weighted: bool) -> str | None:
    """Return the split to choose weights on, if anything is weighted and the split exists."""
    split: str | None = arguments.fuse_split
    if not weighted:
        if split is not None:
            raise InputError(f"--fuse-split {split}: give --fuse or a pipeline with +MODEL, too, or leave it out")
        return None
    if split is None and fusion.SPLIT in collection.splits() and arguments.split != fusion.SPLIT:
        split = fusion.SPLIT
    elif split == arguments.split:
        raise InputError(
            f"--fuse-split {split}: the weight would be chosen on the queries that it is evaluated on: "
            "name another split, or leave it out"
        )
    if split is not None:
        Task.of(collection, split)  # raise for a wrong one
    return split


def _rerank(given: str | None, names: Sequence[str]) -> Rerank | None:
    """Parse `--rerank`; `names` are the systems that it can name."""
    if given is None:
        return None
    name, _, documents = given.rpartition(":")
    if name not in names:
        raise InputError(f"--rerank {given}: write NAME:K, with a system of this command: {', '.join(names)}")
    return Rerank(name, _documents(f"--rerank {given}", name, documents))


def _documents(where: str, name: str, documents: str) -> int:
    """Parse K in NAME:K."""
    if not re.fullmatch("[1-9][0-9]{0,8}", documents):
        raise InputError(f"{where}: K in NAME:K is a number of documents, 1 or more: write {name}:100, say")
    return int(documents)


def _pipelines(given: Sequence[str], systems: Sequence[str], models: Sequence[str]) -> dict[str, Pipeline]:
    """Parse the arguments NAME=SYSTEM:K,MODEL:K,...,MODEL, where a model may be +MODEL."""
    pipelines: dict[str, Pipeline] = {}
    for argument in given:
        where, (name, _, stages) = f"--pipeline {argument}", argument.partition("=")
        *passed_on, last = stages.split(",")
        if not name or not passed_on:
            raise InputError(f"{where}: write NAME=SYSTEM:K,MODEL, where a model re-ranks a system's first K")
        if name in RESERVED or name in systems or name in pipelines or "/" in name:
            raise InputError(f"{where}: the name {name!r} is taken, or has a slash: choose another")
        parts = [stage.rpartition(":") for stage in passed_on]
        first, *later = [*(system for system, _, _ in parts), last]
        plus = [model not in models and model.startswith(PLUS) for model in later]  # a name may begin with a plus
        later = [model[len(PLUS) * interpolated :] for model, interpolated in zip(later, plus, strict=True)]
        for number, of_stage in enumerate([first, *later]):
            what, known = ("model", models) if number else ("system", systems)
            if of_stage not in known:
                raise InputError(f"{where}: {of_stage!r} is not a {what} of this command: {', '.join(known) or 'none'}")
        numbers = [_documents(where, system, k) for system, _, k in parts]
        pipelines[name] = Pipeline(first, tuple(map(Stage, numbers, later, plus)))
    return pipelines


def _metrics(given: Sequence[str]) -> list[str]:
    """Parse `--metrics`: keep each additional metric once."""
    for name in given:
        try:
            Metric.of(name)
        except ValueError:
            kinds = ", ".join(f"{kind}@K" for kind in IR_MEASURES)
            raise InputError(f"--metrics {name}: write {kinds}, with K from 1 to {MOST:,}") from None
    return [name for name in dict.fromkeys(given) if name not in HEADINGS]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="trainer.evaluate", description="Rank a collection; compare in one table.")
    parser.add_argument("--collection", type=Path, required=True, help="a tokenised BEIR folder")
    parser.add_argument("--split", required=True, help="the queries to rank for: qrels/SPLIT.tsv")
    _add_systems(parser)
    _add_combinations(parser)
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
        default=None,
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
    parser.add_argument("--out", type=Path, required=True, help="the JSON file for the results")
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # from the launcher; the environment has it too
    return parser.parse_args(argv)


def _add_systems(parser: argparse.ArgumentParser) -> None:
    """Add the options that name what to compare."""
    parser.add_argument("--bm25", action="store_true", help="also rank with BM25")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME=RUN",
        help="a fine-tuning run, or a folder of sentence-transformers or of a cross-encoder; may be repeated",
    )
    parser.add_argument(
        "--run",
        action="append",
        metavar="NAME=FILE",
        help="a ranking in a TREC run file, made elsewhere; may be repeated",
    )


def _add_combinations(parser: argparse.ArgumentParser) -> None:
    """Add the options that combine systems."""
    parser.add_argument(
        "--pipeline",
        action="append",
        metavar="NAME=SYSTEM:K,MODEL[:K,MODEL...]",
        help="also re-rank a system's first K documents by a model, the first K of that by another, and so on; by "
        "+MODEL together with the scores that they were found by; a model that is only such a later stage is not "
        "ranked by itself; may be repeated",
    )
    parser.add_argument(
        "--fuse", metavar="NAME+NAME", help="also rank with two of these systems as one, such as bm25+NAME"
    )
    parser.add_argument(
        "--fuse-split",
        metavar="SPLIT",
        help=f"the split to choose the weight of --fuse, and of +MODEL, on; by default {fusion.SPLIT}, and reciprocal "
        "ranks, which need no weight, where there is no such split or it is the evaluated one",
    )
    parser.add_argument(
        "--rerank",
        metavar="NAME:K",
        help="models that cannot search re-rank the first K documents that this system found for each query; "
        f"by default {Rerank()}",
    )


if __name__ == "__main__":
    main()
