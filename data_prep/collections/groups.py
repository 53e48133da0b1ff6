"""The groups of a split: a query's candidates with their labels, and the pool that its queries are ranked among.

queries.npy         int64 [groups]: the query's number; one query may have several groups (impressions, dialogues)
group_ends.npy      int64 [groups]: where each group ends in the next two
candidates.npy      int64: numbers of documents
labels.npy          fp32: relevance, a class, or a teacher's score
pool.npy            int64, optional: the documents that the split is ranked among
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.collections.flat_arrays import Rows, map_array
from data_prep.common.errors import InputError


class Group(NamedTuple):
    """A query and its candidates."""

    query: int
    candidates: np.ndarray  # int64 [candidates], different numbers
    labels: np.ndarray  # fp32 [candidates]


@dataclass(frozen=True)
class Groups:
    """The opened groups of a split."""

    queries: np.ndarray
    candidates: Rows
    labels: np.ndarray
    pool: np.ndarray | None

    @classmethod
    def map(cls, folder: Path) -> Groups:
        """Memory-map a split's folder; raise InputError where its arrays do not belong together."""
        queries, labels = map_array(folder / "queries.npy", [np.int64]), map_array(folder / "labels.npy", [np.float32])
        candidates = Rows.map(folder / "candidates.npy", folder / "group_ends.npy", [np.int64])
        if len(queries) != len(candidates) or len(labels) != len(candidates.flat):
            raise InputError(f"{folder}: damaged (its arrays are of different groups); make the collection again")
        pool = map_array(folder / "pool.npy", [np.int64]) if (folder / "pool.npy").exists() else None
        return cls(queries, candidates, labels, pool)

    def __len__(self) -> int:
        """The number of groups."""
        return len(self.queries)

    def __getitem__(self, i: int) -> Group:
        """Group i."""
        candidates = self.candidates[i]
        end = int(self.candidates.ends[i])
        return Group(int(self.queries[i]), candidates, self.labels[end - len(candidates) : end])
