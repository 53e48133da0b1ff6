"""A folder with one generation of mined negatives for the queries of a split.

The refresh of a fine-tuning run writes one between two steps; from then on group sources make examples of it.

queries.npy     int64 [Q], sorted: the numbers of queries
ends.npy        int64 [Q]: where each query's negatives end in documents.npy
documents.npy   int64: numbers of documents, the best of each query first
about.json      the step and the weights that the negatives were mined with, and figures about them
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.collections.flat_arrays import Rows, map_array
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import Count, Record, Sha256, read_json

ABOUT = "about.json"
REMEDY = "restore it from a copy"


class _About(Record):
    """The content of about.json."""

    step: Count
    weights: Sha256
    depth: Count
    margin: float | str | None
    figures: dict[str, float]


@dataclass(frozen=True)
class Generation:
    """An opened generation, memory-mapped."""

    queries: np.ndarray
    documents: Rows
    about: dict[str, Any]

    @classmethod
    def map(cls, folder: Path) -> Generation:
        """Open a generation; raise InputError where it is missing or damaged."""
        if not folder.is_dir():
            raise InputError(f"{folder}: is missing, and the negatives of this step are in it: {REMEDY}")
        queries = map_array(folder / "queries.npy", [np.int64])
        documents = Rows.map(folder / "documents.npy", folder / "ends.npy", [np.int64])
        if len(queries) != len(documents):
            raise InputError(f"{folder}: damaged (its arrays do not match): {REMEDY}")
        return cls(queries, documents, read_json(folder / ABOUT, _About, REMEDY).model_dump())

    def check(self, folder: Path, corpus: int) -> None:
        """Raise InputError, naming the folder, unless all negatives are numbers below that of the documents."""
        numbers = self.documents.flat
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < corpus:
            raise InputError(f"{folder}: damaged (a number of no document): {REMEDY}")

    def negatives(self, query: int) -> np.ndarray:
        """Return the negatives of a query, int64, the best first."""
        at = int(self.queries.searchsorted(query))
        if at == len(self.queries) or self.queries[at] != query:
            return np.empty(0, np.int64)
        return self.documents[at]

    def pairs(self) -> np.ndarray:
        """Return each query with each of its negatives, int64 [n, 2]."""
        counts = np.diff(self.documents.ends, prepend=0)
        return np.stack([np.repeat(self.queries, counts), self.documents.flat], axis=1)


def write(folder: Path, negatives: Mapping[int, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write a generation into an existing folder: the negatives of each query, by its number."""
    queries = sorted(negatives)
    np.save(folder / "queries.npy", np.array(queries, np.int64))
    np.save(folder / "ends.npy", np.cumsum([len(negatives[query]) for query in queries], dtype=np.int64))
    np.save(folder / "documents.npy", np.concatenate([negatives[query] for query in queries]).astype(np.int64))
    (folder / ABOUT).write_text(json.dumps(dict(about), indent=1) + "\n")
