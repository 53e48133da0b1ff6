"""Report what a collection lacks, so that the user knows before training: texts, and relevant documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from data_prep.collections.flat_arrays import map_array
from data_prep.collections.format import Format
from data_prep.collections.groups import Groups
from data_prep.collections.ids import Ids
from data_prep.collections.relevant import positive_pairs
from data_prep.common.errors import InputError

NAMED = 3  # files in a message


def require_any(count: int, otherwise: str, reader: Format) -> int:
    """Return a number of texts or groups; if it is 0, raise InputError with the files and what was left out of them."""
    if count:
        return count
    files = reader.files()
    more = [f"{len(files) - NAMED:,} more"] if len(files) > NAMED else []
    named = ", ".join([*map(str, files[:NAMED]), *more])
    raise InputError("; ".join([f"{otherwise}: {named}", *reader.remarks()]))


def texts_without_words(documents: Path) -> Iterator[str]:
    """Report how many documents of a written folder have no tokens, and which is the first."""
    ends = map_array(documents / "token_ends.npy", [np.int64])
    if len(empty := np.flatnonzero(np.diff(ends, prepend=0) == 0)):
        first = Ids.map(documents)[int(empty[0])]
        yield f"{len(empty):,} of {len(ends):,} documents have no text (the first: {first})"


def queries_without_relevant(splits: Path, names: Iterable[str], queries: Ids) -> Iterator[str]:
    """Report for each written split how many queries have no label above 0, and which is the first.

    Such a query gives no example when training by relevance, and its metrics are 0 in evaluation. Splits whose labels
    are not whole numbers (a teacher's scores) are skipped.
    """
    for name in names:
        groups = Groups.map(splits / name)
        labels = groups.labels
        if not np.array_equal(labels, np.round(labels)):
            continue
        judged = np.unique(groups.queries)
        without = np.setdiff1d(judged, positive_pairs(groups)[0])
        if len(without):
            first = queries[int(without[0])]
            counts = f"{len(without):,} of {len(judged):,} queries"
            yield f"split {name}: {counts} have no relevant document (the first: {first})"
