"""Vectors in files of a block each, read as one array; and the documents that have a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainer.indexes.folder import Folder
from trainer.retrieval.search import Ranked

ROWS = "rows.npy"


class Blocks:
    """The rows of several arrays, memory-mapped or not, as one array [N, H]."""

    def __init__(self, arrays: Sequence[np.ndarray], firsts: np.ndarray | None = None) -> None:
        """Put arrays [n, H] in a row.

        Args:
            arrays: in order.
            firsts: the number of each array's first row, int64, where there are others between them.
        """
        self.arrays = arrays
        self.bounds = np.cumsum([0, *map(len, arrays)])
        self.firsts = self.bounds[:-1] if firsts is None else firsts

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.bounds[-1])

    @property
    def width(self) -> int:
        """The numbers of a row."""
        return int(self.arrays[0].shape[1])

    @property
    def dtype(self) -> np.dtype:
        """That of the numbers."""
        return self.arrays[0].dtype

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Neighbours, by a slice, or any rows, by their places int64 [n]: [n, H]."""
        if isinstance(rows, slice):
            return self._neighbours(*rows.indices(len(self))[:2])
        taken = np.empty((len(rows), self.width), self.dtype)
        order = np.argsort(rows, kind="stable")
        cuts = np.searchsorted(rows[order], self.bounds)
        for block in np.flatnonzero(np.diff(cuts)).tolist():  # each block's at once
            part = order[cuts[block] : cuts[block + 1]]
            taken[part] = self.arrays[block][rows[part] - self.bounds[block]]
        return taken

    def _neighbours(self, start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(self.bounds, [start, max(start, stop - 1)], side="right") - 1
        pieces = self.arrays[first : last + 1]
        rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return rows[start - self.bounds[first] : stop - self.bounds[first]]

    def share(self, rank: int, ranks: int) -> Blocks:
        """The blocks of a rank, whose rows keep their numbers."""
        return Blocks(self.arrays[rank::ranks], self.firsts[rank::ranks])

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of rows, int64 [n], among those of all ranks, from their places here."""
        block = np.searchsorted(self.bounds, rows, side="right") - 1
        return self.firsts[block] + rows - self.bounds[block]


@dataclass(frozen=True)
class TextDocuments:
    """Which documents have which of the different texts: those whose texts are equal have the same vectors."""

    rows: np.ndarray  # int64 [documents], the number of each one's text; texts are numbered by their first documents

    def of(self, texts: Ranked, k: int) -> Ranked:
        """Put all documents of each text in its place, and keep the best k, equal scores by document."""
        order, ends = self._sorted
        starts = np.where(texts.documents > 0, ends[texts.documents - 1], 0)
        counts = ends[texts.documents] - starts
        pieces = [order[start : start + n] for start, n in zip(starts, counts, strict=True)]
        documents = np.concatenate([np.empty(0, np.int64), *pieces])
        scores = np.repeat(texts.scores, counts)
        best = np.lexsort((documents, -scores))[:k]
        return Ranked(documents[best], scores[best])

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """The documents sorted by text, int64 [documents], and where those of each text end, int64 [texts]."""
        return np.argsort(self.rows, kind="stable"), np.bincount(self.rows).cumsum()


def open_blocks(folder: Folder) -> tuple[Blocks, TextDocuments]:
    """Map the vectors of an index, and the texts of its documents; raise InputError where they are damaged."""
    try:
        rows = np.load(folder.directory / ROWS, mmap_mode="r", allow_pickle=False)
        vectors = Blocks(map_blocks(folder, "blocks"))
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise folder.damaged(error) from error
    if len(rows) != folder.manifest["documents"]:
        raise folder.damaged("its number of documents")
    return vectors, TextDocuments(rows)


def map_blocks(folder: Folder, name: str) -> list[np.ndarray]:
    """Map one of the arrays of each block, by the name of its folder; raise OSError or ValueError where one is bad."""
    files = [folder.directory / name / block for block in folder.manifest["blocks"]]
    return [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
