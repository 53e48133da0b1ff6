"""Merge runs or checkpoints of one start into the mean of their weights, a checkpoint that every command takes.

python -m trainer.merge runs/a runs/b runs/c --out runs/mean
python -m trainer.merge runs/a runs/b --weights 0.7 0.3 --out runs/mean
python -m trainer.merge runs/a runs/b runs/c --collection data/mine --choose dev --out runs/chosen
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser

METRIC = "ndcg@10"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.merge"):
        from deepsiam.trainer.ranking.merging import Judge, merge

        judge = None
        if arguments.choose:
            judge = partial(Judge.open, arguments.collection, arguments.choose, arguments.metric or METRIC)
        merge(arguments.runs, arguments.out, arguments.weights, judge)


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(
        prog="deepsiam merge",
        description="Merge runs or checkpoints of one start into the mean of their weights.",
        example="deepsiam merge runs/a runs/b --out runs/mean",
        page="docs/finetuning.md",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help="a run (its newest checkpoint) or checkpoint")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--weights", type=float, nargs="+", metavar="W", help="of each run, with the sum 1 (equal ones)")
    how.add_argument(
        "--choose",
        metavar="SPLIT",
        help="add one run after the other, the best first, and keep those with which this split is ranked no worse",
    )
    parser.add_argument("--collection", type=Path, help="that has the split of --choose")
    parser.add_argument("--metric", metavar="NAME@K", help=f"that --choose compares ({METRIC})")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write, a new folder")
    return parser


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser()
    arguments = command.parse_args(argv)
    if bool(arguments.choose) != bool(arguments.collection):
        command.error("--choose and --collection need each other: give both, or neither")
    if arguments.metric and not arguments.choose:
        command.error("--metric is for --choose: leave it out")
    return arguments


if __name__ == "__main__":
    main()
