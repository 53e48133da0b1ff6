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
from pathlib import Path

from deepsiam.data_prep.collections.relevant import IDENTICAL_IDS
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.choices import DIMENSIONS_HELP, PRECISION_HELP, PRECISIONS
from deepsiam.trainer.ranking.evaluation.metrics import METRICS
from deepsiam.trainer.training.run.arguments import RanksParser

OF_ONE_COLLECTION = ("write_runs", "all_pairs", "candidates", "classes", "dimensions")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.evaluate"):
        if arguments.collections:
            from deepsiam.trainer.ranking.evaluation.many_collections import evaluate_many

            evaluate_many(arguments)
        else:
            _evaluate(arguments)


def _evaluate(arguments: argparse.Namespace) -> None:
    from deepsiam.trainer.interface.evaluation import evaluate
    from deepsiam.trainer.training.engine.world import say

    evaluation = evaluate(
        arguments.collection,
        arguments.system,
        arguments.split,
        metrics=arguments.metrics or (),
        candidates=arguments.candidates,
        classes=arguments.classes,
        ignore_identical_ids=arguments.ignore_identical_ids,
        dimensions=arguments.dimensions,
        precision=arguments.precision,
        write_runs=arguments.write_runs,
        out=arguments.out,
    )
    say(*evaluation.table(all_pairs=arguments.all_pairs).split("\n"))


def parser() -> RanksParser:
    """Return the parser of the command."""
    parser = RanksParser(
        prog="deepsiam evaluate",
        description="Rank a collection with systems, and compare them in one table.",
        example="deepsiam evaluate --collection data/mine --split test --system bm25 --system mine=runs/mine "
        "--out results.json",
        page="docs/evaluation.md",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--collection", type=Path, help="a collection, as `deepsiam prepare` made")
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
        help=f"more columns: {', '.join(METRICS.ours)}, each of the first K documents, such as map@1000",
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
    return parser


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser()
    arguments = command.parse_args(argv)
    for option in OF_ONE_COLLECTION if arguments.collections else ():
        if getattr(arguments, option):
            command.error(f"--{option.replace('_', '-')} needs --collection: name one, or leave it out")
    return arguments


if __name__ == "__main__":
    main()
