"""Documents that do not count for a query, such as BRIGHT's excluded_ids: neither ranked for it nor its negatives.

excluded.npy, excluded_ends.npy     int64, in queries/, if a query has such documents: their numbers, sorted, by query
"""

from functools import cached_property
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.flat_arrays import Rows
from deepsiam.data_prep.collections.format import Format
from deepsiam.data_prep.collections.ids import Ids
from deepsiam.data_prep.common.errors import InputError


class ExcludedDocuments:
    """The excluded documents of each query, by its number."""

    def __init__(self, rows: Rows | None, documents: int) -> None:
        """Take a row for each query, and the number of documents of the corpus."""
        self.rows, self.documents = rows, documents

    @classmethod
    def map(cls, folder: Path, queries: int, documents: int) -> "ExcludedDocuments":
        """Memory-map what `write_excluded` wrote, if anything; raise InputError where it is damaged."""
        if not (folder / "excluded.npy").exists():
            return cls(None, documents)
        rows = Rows.map(folder / "excluded.npy", folder / "excluded_ends.npy", [np.int64])
        if len(rows) != queries:
            raise InputError(f"{folder}: damaged (excluded.npy is of other queries); make the collection again")
        return cls(rows, documents)

    def __bool__(self) -> bool:
        """Whether any query has excluded documents."""
        return self.rows is not None

    def of(self, query: int) -> np.ndarray:
        """Return the excluded documents of a query, int64, sorted."""
        return np.empty(0, np.int64) if self.rows is None else self.rows[query]

    def are(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return which documents are excluded for their queries, bool [n]; both int64 [n], -1 and below: unknown."""
        if self.rows is None:
            return np.zeros(len(documents), bool)
        excluded: np.ndarray = np.isin(queries * self.documents + documents, self._pairs)
        return excluded & (documents >= 0)

    @cached_property
    def _pairs(self) -> np.ndarray:
        """The number of each query and of its document as one, int64."""
        assert self.rows is not None
        return (
            np.repeat(np.arange(len(self.rows)), np.diff(self.rows.ends, prepend=0)) * self.documents + self.rows.flat
        )


def write_excluded(folder: Path, reader: Format, queries: Ids, corpus: Ids) -> list[str]:
    """Write what a format excludes, if anything, into the folder of the queries; return remarks."""
    excluded: dict[int, set[int]] = {}
    number, misses, first_miss = 0, 0, ""
    for query, names, where in reader.excluded():
        if (at := queries.number(query)) < 0:
            raise InputError(f"{where}: {query!r} is not among the queries")
        documents = corpus.find(names)
        number += len(names)
        misses += int((documents < 0).sum())
        lacking = (f"{where}: {name}" for name, i in zip(names, documents, strict=True) if i < 0)
        first_miss = first_miss or next(lacking, "")
        excluded.setdefault(at, set()).update(documents[documents >= 0].tolist())
    if any(excluded.values()):
        rows = [sorted(excluded.get(i, ())) for i in range(len(queries))]
        np.save(folder / "excluded.npy", np.array([document for row in rows for document in row], np.int64))
        np.save(folder / "excluded_ends.npy", np.cumsum([len(row) for row in rows], dtype=np.int64))
    remark = f"{misses:,} of {number:,} excluded documents are not in the corpus (the first: {first_miss})"
    return [remark] if misses else []
