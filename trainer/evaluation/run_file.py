"""TREC run files: a line `QUERY Q0 DOCUMENT RANK SCORE TAG` for each document that a system ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.collections.ids import Ids
from data_prep.common.errors import InputError
from data_prep.common.files import os_errors_as_input_errors, whole_file
from trainer.evaluation.task import Task
from trainer.retrieval.search import Ranked, order_of


class RunFile(NamedTuple):
    """A ranking that was made elsewhere, as a system that finds documents but does not score others."""

    ranked: list[Ranked]  # one for each query of the task
    remarks: list[str]

    def rank(self, k: int) -> list[Ranked]:
        """Return at most k documents for each query."""
        return [Ranked(documents[:k], scores[:k]) for documents, scores in self.ranked]


def write(path: Path, rankings: Iterable[tuple[str, Ranked]], name: Callable[[int], str], tag: str) -> None:
    """Write the rankings of queries; scores are written with all digits that fp32 has.

    Args:
        path: the file.
        rankings: the id and the ranking of each query.
        name: the id of a ranked document.
        tag: names the system; an underscore replaces the spaces in it.

    Raises:
        InputError: an id contains a space, which the format cannot represent, or the file cannot be written.
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
        if len(name.split()) != 1:
            raise InputError(f"{where}: the id {name!r}: run files cannot have ids with spaces in them")


def read(path: Path, task: Task) -> RunFile:
    """Read a ranking of a task's queries over its pool: by score, as in trec_eval, ties in the pool's order.

    Queries that the split does not judge and documents outside its pool are left out and counted in a remark. Judged
    queries that the file lacks count as 0, and are counted in a remark, too.

    Raises:
        InputError: a line is not one of a run file, names a query or a document that the collection does not have,
            repeats a document or a rank of a query, or has a NaN score. The message names the line.
    """
    place = {document: position for position, document in enumerate(task.pool)}
    rows: dict[str, dict[int, float]] = {query: {} for query in task.qrels}
    seen: set[tuple[str, str]] = set()
    # cached: most ids are on many lines, and finding one in a collection takes a while
    finders = cache(partial(_number, task.collection.queries.ids)), cache(partial(_number, task.collection.corpus.ids))
    not_judged, not_in_pool = set(), 0
    with os_errors_as_input_errors(path, "read"), open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            query, document, score = _row(f"{path}:{number}", line, finders, seen)
            if query not in rows:
                not_judged.add(query)
            elif document not in place:
                not_in_pool += 1
            else:
                rows[query][place[document]] = score
    missing = [query for query, found in rows.items() if not found]
    remarks = {
        "judged queries are not in it, and count 0": len(missing),
        "of its queries are not judged, and left out": len(not_judged),
        "of its lines are of documents that are not in the pool, and left out": not_in_pool,
    }
    ranked = []
    for found in rows.values():
        positions, scores = np.array([*found], np.int64), np.array([*found.values()], np.float32)
        order = order_of(scores, positions)
        ranked.append(Ranked(positions[order], scores[order]))
    return RunFile(ranked, [f"{path}: {count:,} {what}" for what, count in remarks.items() if count])


def _number(ids: Ids, name: str) -> int | None:
    return ids.number(name) if name in ids else None


def _row(
    where: str,
    line: str,
    finders: tuple[Callable[[str], int | None], Callable[[str], int | None]],
    seen: set[tuple[str, str]],
) -> tuple[str, int, float]:
    """Parse a line into the query's id, the document's number and the score.

    `finders` find the number of a query and of a document; `seen` contains the documents and ranks of earlier lines.
    """
    fields = line.split()
    if len(fields) != 6:
        raise InputError(f"{where}: has {len(fields)} fields, not the six of QUERY Q0 DOCUMENT RANK SCORE TAG")
    query, _, document, rank, text, _ = fields
    numbers = [find(name) for find, name in zip(finders, (query, document), strict=True)]
    for number, name, what in zip(numbers, (query, document), ("query", "document"), strict=True):
        if number is None:
            raise InputError(f"{where}: the collection has no {what} {name!r}")
    for key, what in ((f"d {document}", f"document {document!r}"), (f"r {rank}", f"rank {rank}")):
        if (query, key) in seen:
            raise InputError(f"{where}: {what} of query {query!r} is on an earlier line, too")
        seen.add((query, key))
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise InputError(f"{where}: the score {text!r} is not a number")
    assert numbers[1] is not None
    return query, numbers[1], score
