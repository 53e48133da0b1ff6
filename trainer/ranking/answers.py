"""Answer queries from an index: in the terminal, in a TREC run file, or on a page; what `trainer.search` does."""

from __future__ import annotations

import argparse
import io
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, count, islice
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.format import text_lines
from deepsiam.data_prep.collections.relevant import IdenticalIds, left_out, unranked
from deepsiam.data_prep.collections.texts import require_utf8
from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.files import refuse_folder
from deepsiam.trainer.ranking.evaluation import run_file
from deepsiam.trainer.ranking.indexes.index import Hit, Index, in_words, require_choice
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.indexes.serve import make_server
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.ranking.retrieval.shared import merge, rank_0_first
from deepsiam.trainer.training.engine.world import World, failed_rank_exits_first, joined, rank_0_speaks

WIDTH = 100  # characters that are shown of a document
AT_ONCE = 1024  # queries of a run file


def answer(arguments: argparse.Namespace) -> None:
    """Open the index that the arguments of `trainer.search` name, and answer their queries."""
    with failed_rank_exits_first():
        world = joined()
        with rank_0_first(world.rank, world.size):
            if world.size > 1 and not arguments.queries:
                raise InputError("several ranks search for the queries of a file or split: give --queries")
            for query in arguments.words:
                require_utf8(query, "QUERY")
            if arguments.write_run:
                refuse_folder(arguments.write_run)
            index = open_index(arguments.index, arguments.collection, arguments.model, arguments.query_model)
            arguments.k = min(arguments.k, len(index.collection.corpus))
            if arguments.approximate:
                require_choice("--approximate", arguments.approximate, index.APPROXIMATIONS, str(arguments.index))
                index.require(arguments.approximate)
            if arguments.verify and world.rank == 0:
                index.folder.verify()
                print(f"{arguments.index}: its files are those of its manifest", flush=True)
            if arguments.queries:
                queries, absent = read_queries(arguments.queries, index.collection, arguments.ignore_identical_ids)
                run_file.check_ids(f"--write-run {arguments.write_run}", chain(queries, index.collection.corpus.ids))
        if arguments.serve is not None:
            _serve(index, arguments)
        elif arguments.queries:
            with rank_0_speaks(world.rank):
                _write_run(index, queries, absent, arguments, world)
        elif arguments.words or not arguments.verify:
            for words in [arguments.words] if arguments.words else ([query] for query in _typed()):
                _show(words, index.search(words, arguments.k, arguments.approximate))


def read_queries(
    source: str, collection: Collection, rule: IdenticalIds
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Read queries, as texts by ids, from the split of the given name, or else from a file of lines `ID<TAB>TEXT`.

    Returns:
        The queries, and the documents that are left out of the ranking of a split's query, int64, by the query's id.

    Raises:
        InputError: there is neither, or a line of the file has no tab, no id, or the id of an earlier line.
    """
    if source in collection.splits():
        numbers = np.unique(collection.groups(source).queries).tolist()
        ids, absent = collection.queries.ids, unranked(collection, numbers, left_out(collection, source, rule))
        queries = {ids[i]: collection.queries.text(i) for i in numbers}
        return queries, {ids[query]: documents for query, documents in absent.items()}
    path = Path(source)
    if not path.is_file():
        splits = ", ".join(collection.splits()) or "none"
        raise InputError(f"--queries {source}: no such file, nor a split of {collection.directory} (it has {splits})")
    queries = {}
    for where, line in text_lines(path):
        name, tab, text = line.partition("\t")
        if not tab or not name:
            raise InputError(f"{where}: write ID, a tab, and the query")
        if name in queries:
            raise InputError(f"{where}: the id {name!r} is on an earlier line, too")
        queries[name] = text
    if not queries:
        raise InputError(f"{path}: has no query")
    return queries, {}


def _serve(index: Index, arguments: argparse.Namespace) -> None:
    """Answer a browser until Ctrl-C; the index of `--beside` is searched in the same way where possible."""
    indexes = {str(arguments.index): (index, arguments.approximate)}
    if arguments.beside:
        beside = open_index(arguments.beside, arguments.collection)
        approximation = arguments.approximate if arguments.approximate in beside.APPROXIMATIONS else None
        if approximation:
            beside.require(approximation)
        indexes[str(arguments.beside)] = beside, approximation
    systems = {
        name: lambda query, k, of=of, by=approximation: of.search(query, k, by)
        for name, (of, approximation) in indexes.items()
    }
    with make_server(systems, arguments.host, arguments.serve, arguments.k) as server:
        print(f"http://{arguments.host}:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _write_run(
    index: Index, queries: dict[str, str], absent: dict[str, np.ndarray], arguments: argparse.Namespace, world: World
) -> None:
    """Search for all queries, each rank in its share of the index, and write the run file on rank 0.

    `absent`: the documents that are left out of a query's ranking.
    """
    k = arguments.k + max(map(len, absent.values()), default=0)

    def rankings() -> Iterator[tuple[str, Ranked]]:
        query_ids = iter(queries)
        while names := list(islice(query_ids, AT_ONCE)):
            texts = [queries[name] for name in names]
            shard = index.search_share(texts, k, arguments.approximate, world.rank, world.size)
            for name, (documents, scores) in zip(names, merge(shard, k, world.rank, world.size) or (), strict=False):
                mask = ~np.isin(documents, absent.get(name, ()))
                yield name, Ranked(documents[mask][: arguments.k], scores[mask][: arguments.k])

    if world.rank == 0:
        names = index.collection.corpus.ids
        run_file.write(arguments.write_run, rankings(), lambda i: names[i], arguments.index.resolve().name)
        print(
            f"wrote {arguments.write_run}: {len(queries):,} queries, at most {arguments.k} documents each", flush=True
        )
        if absent:
            excluded = "excluded documents, and " * bool(index.collection.excluded)
            left_out = f"{excluded}the document with the query's id, for {len(absent):,} queries, as by BEIR"
            print(f"left out: {left_out}", flush=True)
    else:
        deque(rankings(), maxlen=0)  # the other ranks write nothing


def _typed() -> Iterator[str]:
    """Yield the lines of stdin; on a terminal, prompt for them."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # so that only the line that is not UTF-8 is refused
    for number in count(1):
        if sys.stdin.isatty():
            print("query (empty to stop): ", end="", flush=True)
        line = sys.stdin.readline()
        query = line.removeprefix("\ufeff").strip()
        if not line or (not query and sys.stdin.isatty()):
            return
        if query:
            require_utf8(query, f"standard input:{number}")
            yield query


def _show(queries: Sequence[str], rankings: Sequence[Sequence[Hit]]) -> None:
    for query, documents in zip(queries, rankings, strict=True):
        print(printable(query))
        for rank, (name, score, text, terms) in enumerate(documents, 1):
            line = " ".join(text.split())
            shown = printable(line[:WIDTH]) + "…" * (len(line) > WIDTH)
            print(f"{rank:4}  {score:8.4f}  {printable(name)}  {shown}")
            if terms:
                print(f"{'':16}{printable(in_words(terms))}")
        print(flush=True)
