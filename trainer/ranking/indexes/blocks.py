"""Vectors in files of one block each, read as one array; and which documents have which text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.retrieval.search import Ranked

ROWS = "rows.npy"
DTYPES = ("float32", "float16")


class Blocks:
    """The rows of several arrays, memory-mapped or not, as one array [N, H]."""

    def __init__(self, arrays: Sequence[np.ndarray], firsts: np.ndarray | None = None) -> None:
        """Join arrays [n, H].

        Args:
            arrays: in order.
            firsts: the number of each array's first row, int64, where other arrays lie between these.
        """
        self.arrays = arrays
        self.bounds = np.cumsum([0, *map(len, arrays)])
        self.firsts = self.bounds[:-1] if firsts is None else firsts

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def __str__(self) -> str:
        return f"{len(self):,} vectors of {self.width} x {self.dtype}"

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return int(self.arrays[0].shape[1])

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the numbers."""
        return self.arrays[0].dtype

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return rows [n, H]: consecutive ones, by a slice, or any, by their places int64 [n]."""
        if isinstance(rows, slice):
            return self._neighbours(*rows.indices(len(self))[:2])
        copied = np.empty((len(rows), self.width), self.dtype)
        order = np.argsort(rows, kind="stable")
        cuts = np.searchsorted(rows[order], self.bounds)
        for block in np.flatnonzero(np.diff(cuts)).tolist():  # all rows of a block at once
            part = order[cuts[block] : cuts[block + 1]]
            copied[part] = self.arrays[block][rows[part] - self.bounds[block]]
        return copied

    def _neighbours(self, start: int, stop: int) -> np.ndarray:
        first_block, last_block = np.searchsorted(self.bounds, [start, max(start, stop - 1)], side="right") - 1
        pieces = self.arrays[first_block : last_block + 1]
        rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return rows[start - self.bounds[first_block] : stop - self.bounds[first_block]]

    def share(self, rank: int, ranks: int) -> Blocks:
        """Return a rank's share of the blocks; their rows keep their numbers."""
        return Blocks(self.arrays[rank::ranks], self.firsts[rank::ranks])

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Turn the places of rows in this share, int64 [n], into their numbers among the rows of all ranks."""
        block = np.searchsorted(self.bounds, rows, side="right") - 1
        return self.firsts[block] + rows - self.bounds[block]


@dataclass(frozen=True)
class TextDocuments:
    """Which of the distinct texts each document has; documents with equal texts have the same vectors."""

    rows: np.ndarray  # int64 [documents], each one's text number; texts are numbered by their first documents

    def ranked(self, texts: Ranked, k: int) -> Ranked:
        """Replace each text by all documents that have it, and keep the best k; ties are in the order of documents."""
        pieces = list(map(self.having, texts.documents.tolist()))
        documents = np.concatenate([np.empty(0, np.int64), *pieces])
        scores = np.repeat(texts.scores, list(map(len, pieces)))
        order = np.lexsort((documents, -scores))[:k]
        return Ranked(documents[order], scores[order])

    def having(self, text: int) -> np.ndarray:
        """Return the documents that have a text, by its number."""
        order, ends = self._sorted
        return order[ends[text - 1] if text else 0 : ends[text]]

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        return np.argsort(self.rows, kind="stable"), np.bincount(self.rows).cumsum()  # and where those of a text end


def open_blocks(folder: IndexFolder, dtypes: Sequence[str] = DTYPES) -> tuple[Blocks, TextDocuments]:
    """Memory-map the vectors of an index, and the texts of its documents; raise InputError where they are damaged."""
    documents = open_documents(folder)
    arrays = map_blocks(folder, "blocks", stored_dtypes(folder, dtypes), 2)
    if len({array.shape[1] for array in arrays}) != 1:
        raise folder.damaged("its blocks differ in width")
    return Blocks(arrays), documents


def open_documents(folder: IndexFolder) -> TextDocuments:
    """Memory-map the texts of an index's documents; raise InputError where they are damaged."""
    rows, texts = folder.array(ROWS, [np.int64]), folder.manifest["texts"]
    if len(rows) != folder.manifest["documents"]:
        raise folder.damaged("its number of documents")
    if not len(rows) or rows.min() < 0 or rows.max() != texts - 1:
        raise folder.damaged(f"{ROWS}: not the numbers of {texts:,} texts")
    return TextDocuments(rows)


def stored_dtypes(folder: IndexFolder, dtypes: Sequence[str] = DTYPES) -> Sequence[str]:
    """Return the dtypes that the stored numbers may have: that of the manifest, where it is one of `dtypes`."""
    return [dtype for dtype in dtypes if dtype == folder.manifest.get("dtype")] or dtypes


def open_ends(folder: IndexFolder, vectors: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Read where each text's vectors end, int64 [texts], and the number of each block's first text, int64 [blocks + 1].

    Raises:
        InputError: the files are damaged, or of other vectors.
    """
    ends = map_blocks(folder, "ends", [np.int64], 1)
    if any((np.diff(block_ends, prepend=0) < 0).any() for block_ends in ends):
        raise folder.damaged("ends: they are not in order")
    counts = [int(block_ends[-1]) if len(block_ends) else 0 for block_ends in ends]
    bounds = np.cumsum([0, *map(len, ends)])
    if counts != [len(array) for array in vectors.arrays] or bounds[-1] != folder.manifest["texts"]:
        raise folder.damaged("its number of vectors")
    shifted = [block_ends + start for block_ends, start in zip(ends, vectors.firsts, strict=True)]
    return np.concatenate(shifted), bounds


def map_blocks(folder: IndexFolder, name: str, dtypes: Sequence[npt.DTypeLike], dimensions: int) -> list[np.ndarray]:
    """Memory-map one array of each block, by its folder's name; raise InputError where a file is damaged."""
    return [folder.array(f"{name}/{block}", dtypes, dimensions) for block in folder.manifest["blocks"]]
