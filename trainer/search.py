"""Search an index: the best documents for queries in words.

python -m trainer.search indexes/mine "how do planes fly" "what is lift"
python -m trainer.search indexes/mine < queries.txt         a query a line; asks for them on a terminal
python -m trainer.search indexes/mine --beside indexes/other --serve 8000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from data_prep.common.argument_types import port, positive
from data_prep.common.errors import exit_on_input_error
from trainer.retrieval.approximate import KINDS
from trainer.retrieval.index import Index
from trainer.retrieval.searcher import Found, Searcher
from trainer.retrieval.serve import make_server

WIDTH = 100  # characters that are shown of a document


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _arguments(argv)
    with exit_on_input_error("trainer.search"):
        searcher = Searcher.open(Index.open(chosen.index), chosen.collection, chosen.model)
        if chosen.serve is not None:
            _serve(searcher, chosen)
            return
        if chosen.queries:
            for query, found in zip(
                chosen.queries, searcher.search(chosen.queries, chosen.k, chosen.approximate), strict=True
            ):
                _show(query, found)
            return
        for query in _typed():
            (of_query,) = searcher.search([query], chosen.k, chosen.approximate)
            _show(query, of_query)


def _serve(searcher: Searcher, chosen: argparse.Namespace) -> None:
    """Answer a browser until Ctrl-C."""
    searchers = {str(chosen.index): searcher}
    if chosen.beside:
        searchers[str(chosen.beside)] = Searcher.open(Index.open(chosen.beside))
    systems = {
        name: lambda query, k, of=one: of.search([query], k, chosen.approximate)[0] for name, one in searchers.items()
    }
    with make_server(systems, chosen.host, chosen.serve, chosen.k) as server:
        print(f"http://{chosen.host}:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


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
    parser.add_argument("--serve", type=port, metavar="PORT", help="serve a page with a query box instead")
    parser.add_argument("--beside", type=Path, metavar="INDEX", help="another index, to show beside it on the page")
    parser.add_argument("--host", default="127.0.0.1", help="the address to serve at (127.0.0.1: this machine alone)")
    parser.add_argument("--approximate", choices=KINDS, help="search so, where trainer.index has prepared it")
    parser.add_argument("--collection", type=Path, help="where the index's collection is now, if it was moved")
    parser.add_argument("--model", type=Path, metavar="RUN", help="where its model is now, likewise")
    chosen = parser.parse_intermixed_args(argv)
    if chosen.beside == chosen.index:
        parser.error("--beside names the same index: name another one")
    if chosen.serve is None and chosen.beside:
        parser.error("--beside is for the page: add --serve PORT")
    if chosen.serve is not None and chosen.queries:
        parser.error("--serve takes its queries from the page: leave them out")
    return chosen


if __name__ == "__main__":
    main()
