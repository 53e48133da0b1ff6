"""Search an index: the best documents for queries in words.

python -m trainer.search indexes/mine "how do planes fly" "what is lift"
python -m trainer.search indexes/mine < queries.txt         a query a line; asks for them on a terminal
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.common.argument_types import positive
from data_prep.common.errors import exit_on_input_error
from trainer.retrieval.approximate import KINDS
from trainer.retrieval.index import Index
from trainer.retrieval.searcher import Found, Searcher

WIDTH = 100  # characters that are shown of a document


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _arguments(argv)
    with exit_on_input_error("trainer.search"):
        searcher = Searcher.open(Index.open(chosen.index), chosen.collection, chosen.model)
        if chosen.queries:
            for query, found in zip(
                chosen.queries, searcher.search(chosen.queries, chosen.k, chosen.approximate), strict=True
            ):
                _show(query, found)
            return
        for query in _typed():
            (of_query,) = searcher.search([query], chosen.k, chosen.approximate)
            _show(query, of_query)


def _typed() -> Iterator[str]:
    """The lines of stdin; on a terminal, asked for."""
    while True:
        if sys.stdin.isatty():
            print("query (empty to stop): ", end="", flush=True)
        line = sys.stdin.readline()
        query = line.strip()
        if not line or (not query and sys.stdin.isatty()):
            return
        if query:
            yield query


def _show(query: str, found: Sequence[Found]) -> None:
    print(query)
    for rank, (name, score, text) in enumerate(found, 1):
        line = " ".join(text.split())
        print(f"{rank:4}  {score:8.4f}  {name}  {line if len(line) <= WIDTH else line[:WIDTH] + '…'}")
    print(flush=True)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainer.search", description="Search an index.")
    parser.add_argument("index", type=Path, help="folder of trainer.index")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="in words; by default lines of the standard input")
    parser.add_argument("--k", type=positive, default=10, help="documents to show for each query (10)")
    parser.add_argument("--approximate", choices=KINDS, help="search so, where trainer.index has prepared it")
    parser.add_argument("--collection", type=Path, help="where the index's collection is now, if it was moved")
    parser.add_argument("--model", type=Path, metavar="RUN", help="where its model is now, likewise")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
