"""The groups of a split: a query's candidates with their labels, and the pool that its queries rank.

queries.npy         int64 [groups]: the query's number; one query may have several groups (impressions, dialogues)
group_ends.npy      int64 [groups]: where each group ends in the next two
candidates.npy      int64: numbers of documents
labels.npy          fp32: relevance, a class, or, in collections without scores.npy, maybe a teacher's score
scores.npy          fp32, optional: a teacher's score of each candidate; NaN: not scored
pool.npy            int64, optional: the documents that the split's queries rank
found_by.npy        uint8, optional: the system that found each candidate (see the manifest's `mined`); 0: not mined
found_scores.npy    fp32, optional: the score that this system gave it; NaN: not mined
unlisted.npy        int64, optional: documents that are judged for the groups but not among their candidates, cut into
                    groups by unlisted_ends.npy; -1: the corpus lacks it; their labels are unlisted_labels.npy, fp32
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.collections.flat_arrays import Rows, map_array
from deepsiam.data_prep.common.errors import InputError

LARGEST_GRADE = 1_000_000  # of relevance; pytrec_eval takes 8 bytes for each possible grade


def no_grades(labels: np.ndarray) -> str:
    """Return why labels, fp32, cannot be relevance, such as a teacher's scores or similarities; empty if they can.

    Relevance is graded in whole numbers, of which those above 0 are relevant: the one rule of all commands.
    """
    if fractions := int(np.count_nonzero(labels != np.round(labels))):
        return f"its labels are not whole numbers ({fractions:,} of {len(labels):,}, {span(labels)})"
    if (largest := labels.max(initial=0)) > LARGEST_GRADE:
        return f"its largest label {largest:g} is above any grade"
    return ""


def span(labels: np.ndarray) -> str:
    """Return the lowest and the highest label in words."""
    return f"from {labels.min():g} to {labels.max():g}"


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
    scores: np.ndarray | None = None
    found_by: np.ndarray | None = None
    found_scores: np.ndarray | None = None
    unlisted: Rows | None = None
    unlisted_labels: np.ndarray | None = None

    @classmethod
    def map(cls, folder: Path) -> "Groups":
        """Memory-map a split's folder; raise InputError where its arrays do not belong together."""
        queries, labels = map_array(folder / "queries.npy", [np.int64]), map_array(folder / "labels.npy", [np.float32])
        candidates = Rows.map(folder / "candidates.npy", folder / "group_ends.npy", [np.int64])
        dtypes = {"pool": np.int64, "scores": np.float32, "found_by": np.uint8, "found_scores": np.float32}
        pool, scores, found_by, found_scores, unlisted_labels = (
            map_array(folder / f"{name}.npy", [dtype]) if (folder / f"{name}.npy").exists() else None
            for name, dtype in {**dtypes, "unlisted_labels": np.float32}.items()
        )
        unlisted = None
        if unlisted_labels is not None:
            unlisted = Rows.map(folder / "unlisted.npy", folder / "unlisted_ends.npy", [np.int64])
        of_candidates = [array for array in (labels, scores, found_by, found_scores) if array is not None]
        if (
            any(len(rows) != len(queries) for rows in (candidates, unlisted) if rows is not None)
            or any(len(array) != len(candidates.flat) for array in of_candidates)
            or (unlisted is not None and len(unlisted.flat) != len(unlisted_labels))  # type: ignore[arg-type]
        ):
            raise InputError(f"{folder}: damaged (its arrays are of different groups); make the collection again")
        return cls(queries, candidates, labels, pool, scores, found_by, found_scores, unlisted, unlisted_labels)

    def __len__(self) -> int:
        """The number of groups."""
        return len(self.queries)

    def __getitem__(self, i: int) -> Group:
        """Return group i."""
        candidates = self.candidates[i]
        end = int(self.candidates.ends[i])
        return Group(int(self.queries[i]), candidates, self.labels[end - len(candidates) : end])

    def only(self, are_kept: np.ndarray) -> "Groups":
        """Return some groups, bool [groups], in memory; there must be no `unlisted` documents."""
        assert self.unlisted is None
        lengths = np.diff(self.candidates.ends, prepend=0)
        in_kept = np.repeat(are_kept, lengths)
        of_candidates = (
            None if array is None else array[in_kept] for array in (self.scores, self.found_by, self.found_scores)
        )
        candidates = Rows(self.candidates.flat[in_kept], np.cumsum(lengths[are_kept]))
        return Groups(self.queries[are_kept], candidates, self.labels[in_kept], self.pool, *of_candidates)

    @property
    def taught(self) -> np.ndarray:
        """A teacher's scores of all candidates, fp32; NaN: not scored. Without any, the labels may be such scores."""
        return self.labels if self.scores is None else self.scores

    def elsewhere(self, i: int) -> list[tuple[int, float]]:
        """Return the documents that are judged for group i but not among its candidates, with their labels."""
        if self.unlisted is None or self.unlisted_labels is None:
            return []
        documents, end = self.unlisted[i], int(self.unlisted.ends[i])
        labels = self.unlisted_labels[end - len(documents) : end]
        return list(zip(documents.tolist(), labels.tolist(), strict=True))
