"""Search an index: the best documents for queries in words.

python -m trainer.search indexes/mine "how do planes fly" "what is lift"
python -m trainer.search indexes/mine < queries.txt         a query a line; asks for them on a terminal
python -m trainer.search indexes/mine --beside indexes/bm25 --serve 8000
deepspeed --hostfile hostfile --module trainer.search indexes/mine --queries test --write-run mine.trec
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.collections.relevant import IDENTICAL_IDS
from deepsiam.data_prep.common.argument_types import port, positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.choices import APPROXIMATIONS
from deepsiam.trainer.training.run.arguments import RanksParser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.search"):
        from deepsiam.trainer.ranking.answers import answer

        answer(arguments)


def parser() -> RanksParser:
    """Return the parser of the command."""
    parser = RanksParser(
        prog="deepsiam search",
        description="Search an index: the best documents for queries in words.",
        example="deepsiam search indexes/mine 'how do planes fly'",
        page="docs/search.md",
    )
    parser.add_argument("index", type=Path, help="folder of `deepsiam index`")
    parser.add_argument(
        "words", nargs="*", metavar="QUERY", help="a query in words; by default lines of the standard input"
    )
    parser.add_argument("--k", type=positive, default=10, help="documents to find for each query (10)")
    parser.add_argument(
        "--queries", metavar="SPLIT|FILE", help="search for those of a split, or of a file of lines ID<TAB>TEXT"
    )
    parser.add_argument(
        "--ignore-identical-ids",
        choices=IDENTICAL_IDS,
        default="auto",
        help="for the queries of a split, leave out the document with the query's id; auto: where it is the same text",
    )
    parser.add_argument("--write-run", type=Path, metavar="FILE", help="and write what is found as a TREC run file")
    parser.add_argument("--serve", type=port, metavar="PORT", help="serve a page with a query box instead")
    parser.add_argument("--beside", type=Path, metavar="INDEX", help="another index, to show beside it on the page")
    parser.add_argument("--host", default="127.0.0.1", help="the address to serve at (127.0.0.1: this machine alone)")
    parser.add_argument(
        "--approximate",
        choices=APPROXIMATIONS,
        help="use an approximate search that `deepsiam index` has prepared",
    )
    parser.add_argument("--collection", type=Path, help="where the index's collection is now, if it was moved")
    parser.add_argument(
        "--model", type=Path, metavar="RUN", help="where its model is now, likewise; not that of --beside"
    )
    parser.add_argument(
        "--query-model", type=Path, metavar="RUN", help="search for queries of this student of the index's model"
    )
    parser.add_argument(
        "--verify", action="store_true", help="check all files of the index first; without queries, only that"
    )
    return parser


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser()
    arguments = command.parse_intermixed_args(argv)
    if arguments.beside == arguments.index:
        command.error("--beside names the same index: name another one")
    if arguments.serve is None and arguments.beside:
        command.error("--beside is for the page: add --serve PORT")
    if arguments.serve is not None and (arguments.words or arguments.queries):
        command.error("--serve takes its queries from the page: leave them out")
    if arguments.words and arguments.queries:
        command.error("--queries names all queries: leave out those in words")
    if bool(arguments.queries) != bool(arguments.write_run):
        command.error("--queries and --write-run go together: what to search for, and where to write what is found")
    return arguments


if __name__ == "__main__":
    main()
