"""Queries to search for: those of a split, or of a file with one line `ID<TAB>TEXT` per query."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.format import text_lines
from deepsiam.data_prep.collections.relevant import IdenticalIds, left_out, unranked
from deepsiam.data_prep.common.errors import InputError


def read_queries(
    given: str, collection: Collection, rule: IdenticalIds
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Read queries, as texts by ids, from the split of the given name, or else from the file.

    Returns:
        The queries, and the documents that are left out of the ranking of a split's query, int64, by the query's id.

    Raises:
        InputError: there is neither, or a line of the file has no tab, no id, or the id of an earlier line.
    """
    if given in collection.splits():
        numbers = np.unique(collection.groups(given).queries).tolist()
        ids, absent = collection.queries.ids, unranked(collection, numbers, left_out(collection, given, rule))
        queries = {ids[i]: collection.queries.text(i) for i in numbers}
        return queries, {ids[query]: documents for query, documents in absent.items()}
    path = Path(given)
    if not path.is_file():
        splits = ", ".join(collection.splits()) or "none"
        raise InputError(f"--queries {given}: no such file, nor a split of {collection.directory} (it has {splits})")
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
