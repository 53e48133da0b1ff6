"""TREC run files: a line `QUERY Q0 DOCUMENT RANK SCORE TAG` for each document that a system ranks.

Fields after the tag are not read, as by trec_eval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.collections.format import Where, check_number, fields, text_lines
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_file
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.search import Ranked, order_of


class RunFile(NamedTuple):
    """A ranking that was made elsewhere."""

    ranked: list[Ranked]  # one for each query of the task
    remarks: list[str]


def write(path: Path, rankings: Iterable[tuple[str, Ranked]], name: Callable[[int], str], tag: str) -> None:
    """Write the rankings of queries; scores are written with all digits that fp32 has.

    Args:
        path: the file.
        rankings: the id and the ranking of each query.
        name: the id of a ranked document.
        tag: names the system; an underscore replaces the spaces in it.

    Raises:
        InputError: an id is empty or contains white space, which the format cannot represent, or the file cannot be
            written.
    """
    tag = "_".join(tag.split())
    with whole_file(path) as file:
        for query, (documents, scores) in rankings:
            for rank, (document, score) in enumerate(zip(documents.tolist(), scores, strict=True), 1):
                fields = query, "Q0", name(document), str(rank), str(score), tag
                check_ids(path, (query, fields[2]))
                file.write((" ".join(fields) + "\n").encode())


def check_ids(where: object, ids: Iterable[str]) -> None:
    """Raise InputError for an id that the format cannot represent."""
    for name in ids:
        if name.split() != [name]:
            raise InputError(f"{where}: the id {name!r}: run files cannot have ids with spaces in them or around them")


def read(path: Path, task: Task) -> RunFile:
    """Read a ranking of a task's queries over its pool: by score, as in trec_eval, ties in the pool's order.

    The column of ranks is not read, as in trec_eval: BEIR writes 0 into it. Queries that the split does not judge, and
    documents that are not in its pool or not in the collection, are left out and counted in a remark. Judged queries
    that the file lacks count as 0, and are counted in a remark, too.

    Raises:
        InputError: a line is not one of a run file, repeats a document of a query, or has a score that fp32 cannot
            hold (the message names the line); or no line names both a query and a document of the collection.
    """
    place = {document: position for position, document in enumerate(task.pool)}
    rows: dict[str, dict[int, float]] = {query: {} for query in task.qrels}
    # cached: most ids are on many lines, and finding one in a collection takes a while
    query_of, document_of = (cache(ids.number) for ids in (task.collection.queries.ids, task.collection.corpus.ids))
    first_unknown, is_of_collection = "", False
    not_judged, not_in_pool, elsewhere = set(), 0, set[tuple[str, str]]()
    for where, line in text_lines(path):
        query, document, score = _row(where, line)
        query_number, number = query_of(query), document_of(document)
        if (query, document) in elsewhere or place.get(number) in rows.get(query, ()):
            raise InputError(f"{where}: document {document!r} of query {query!r} is on an earlier line, too")
        if query_number < 0 or number < 0:
            unit, name = ("query", query) if query_number < 0 else ("document", document)
            first_unknown = first_unknown or f"{where}: the collection has no {unit} {name!r}"
        else:
            is_of_collection = True
        if query in rows and number in place:
            rows[query][place[number]] = score
            continue
        elsewhere.add((query, document))
        if query not in rows:
            not_judged.add(query)
        else:
            not_in_pool += 1
    if first_unknown and not is_of_collection:
        raise InputError(f"{first_unknown}, nor those of any other line: is this run of another collection?")
    if not is_of_collection:
        raise InputError(f"{path}: has no line; get it again, or leave it out")
    remarks = {
        "judged queries are not in it, and count 0": sum(not row for row in rows.values()),
        "of its queries are not judged, and left out": len(not_judged),
        "of its lines are of documents that are not in the pool, and left out": not_in_pool,
    }
    ranked = []
    for row in rows.values():
        positions, scores = np.array([*row], np.int64), np.array([*row.values()], np.float32)
        order = order_of(scores, positions)
        ranked.append(Ranked(positions[order], scores[order]))
    lines = [f"{path}: {count:,} {unit}" for unit, count in remarks.items() if count]
    return RunFile(ranked, lines + ([f"{first_unknown} (the first that it lacks)"] if first_unknown else []))


def _row(where: Where, line: str) -> tuple[str, str, float]:
    """Parse a line into the ids of the query and the document, and the score."""
    cells = fields(line)
    if len(cells) < 6:
        raise InputError(f"{where}: has {len(cells)} fields, not the six of QUERY Q0 DOCUMENT RANK SCORE TAG")
    query, _, document, _, text = cells[:5]
    return query, document, check_number(text, "the score", where)
