"""The documents that are relevant to each query of a split, in any of its groups."""

from __future__ import annotations

import numpy as np

from data_prep.collections.groups import Groups


class Relevant:
    """The documents with a label above 0, for each query of a split."""

    def __init__(self, groups: Groups) -> None:
        """Read the labels of a split."""
        at = np.flatnonzero(np.asarray(groups.labels) > 0)
        of_queries = np.asarray(groups.queries)[group_of(groups, at)]
        pairs = np.unique(np.stack([of_queries, np.asarray(groups.candidates.flat)[at]]), axis=1)
        self.queries, starts = np.unique(pairs[0], return_index=True)
        self.documents, self.ends = pairs[1], np.append(starts, len(pairs[1]))

    @property
    def most(self) -> int:
        """The largest number of relevant documents of any query."""
        return int(np.diff(self.ends).max(initial=0))

    def documents_in_all(self) -> np.ndarray:
        """Return all relevant documents, each once, int64."""
        return np.unique(self.documents)

    def of(self, query: int) -> np.ndarray:
        """Return the relevant documents of a query, int64, sorted."""
        at = int(self.queries.searchsorted(query))
        if at == len(self.queries) or self.queries[at] != query:
            return self.documents[:0]
        return self.documents[self.ends[at] : self.ends[at + 1]]


def group_of(groups: Groups, at: np.ndarray) -> np.ndarray:
    """Return the number of the group that each position of the flat arrays is in."""
    return np.searchsorted(np.asarray(groups.candidates.ends), at, side="right")
