"""Encode a collection's documents into blocks; every rank encodes its own blocks.

blocks/NNNNNN.npy   fp32 or fp16 [S, H]: the vectors of a block of distinct texts, ordered by their first documents;
                    or uint8, compressed: see residual.py
ends/NNNNNN.npy     int64 [texts of the block]: where each text's vectors end; only where a text has several
rows.npy            int64 [documents]: which of the distinct texts each document has

The files of a block of texts with terms are described in sparse.py.

Documents whose texts are equal, as the model reads them, have the same vectors, so their scores are equal. Ranks of
several hosts share the work through one folder. Existing blocks are not encoded again, so a stopped command resumes,
with any number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from deepsiam.data_prep.common.files import make_directory, save_array
from deepsiam.data_prep.common.progress import Report, meter
from deepsiam.trainer.ranking.indexes import folder
from deepsiam.trainer.ranking.indexes.blocks import ROWS
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder, distinct, require_finite
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, wait_for


@dataclass(frozen=True)
class Storage(ABC):
    """How a kind of index stores what its model makes of texts."""

    block: int  # texts in a block
    dtype: str
    folders: ClassVar[tuple[str, ...]]  # of the files of a block, in the order written; "blocks" is last

    def stored(self, of_text: np.ndarray) -> np.ndarray:
        """Convert what the model makes of a text, [m, ...]."""
        return of_text.astype(self.dtype)

    @abstractmethod
    def arrays(self, of_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays of a block, one for each folder, given the stored form of its texts."""

    def prepared(self, building: Builder, ranker: VectorRanker, rank: int, ranks: int) -> Storage:
        """Make what the writing of blocks needs, and return the storage that writes them; all ranks must call this."""
        return self

    def derive(self, building: Builder, rank: int, ranks: int) -> None:  # noqa: B027  most kinds need none
        """Make the files that depend on all blocks, once these are written; all ranks must call this."""

    def files(self, directory: Path) -> list[Path]:
        """Return the files that `prepared` and `derive` make and that the index needs."""
        return []


class OneVector(Storage):
    """A vector for each text."""

    folders = ("blocks",)

    def arrays(self, of_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The vectors."""
        vectors = np.concatenate(of_texts)
        if len(vectors) != len(of_texts):
            raise ValueError(f"{len(of_texts)} texts have {len(vectors)} vectors, not one each")
        return [vectors]


class SeveralVectors(Storage):
    """Several vectors for each text."""

    folders = ("ends", "blocks")

    def arrays(self, of_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Where the vectors of each text end, and the vectors."""
        return [np.cumsum([len(of_text) for of_text in of_texts], dtype=np.int64), np.concatenate(of_texts)]


@dataclass(frozen=True)
class Builder:
    """An index under construction; every rank has a builder."""

    directory: Path
    storage: Storage
    made_of: dict[str, Any]  # for the manifest
    texts: Callable[[int], np.ndarray]  # the token ids of a document, as the model reads them
    encoder: TextEncoder
    rows: np.ndarray  # int64 [documents], which of the distinct texts each has
    first: np.ndarray  # int64 [distinct texts], the first document with each

    @property
    def names(self) -> list[str]:
        """The file name of each block."""
        return [f"{i:06d}.npy" for i in range(-(-len(self.first) // self.storage.block))]

    def write(self, rank: int, ranks: int, beat: Callable[[], None] = lambda: None) -> None:
        """Encode this rank's missing blocks; call `beat` after every batch."""
        blocks = self.directory / "blocks"
        missing = [i for i, name in enumerate(self.names) if i % ranks == rank and not (blocks / name).is_file()]
        total = sum(len(self._documents(i)) for i in missing)
        with meter("encode", "texts", total) as report:
            done = 0
            for i in missing:
                done = self._write(i, report, done, beat)

    def _documents(self, block: int) -> np.ndarray:
        return self.first[block * self.storage.block : (block + 1) * self.storage.block]

    def _write(self, block: int, report: Report, done: int, beat: Callable[[], None]) -> int:
        """Encode a block after `done` texts; return the number of texts done afterwards."""
        texts = [self.texts(i) for i in self._documents(block).tolist()]
        name = self.names[block]
        stored: dict[int, np.ndarray] = {}
        for batch, encoded, counts in self.encoder.batches(texts):
            for number, of_text in zip(batch, np.split(encoded, counts.cumsum()[:-1]), strict=True):
                stored[number] = self._stored(of_text, name)
            report(done + len(stored), "")
            beat()
        arrays = self.storage.arrays([stored[i] for i in range(len(texts))])
        for where, array in zip(self.storage.folders, arrays, strict=True):
            save_array(self.directory / where / name, array)
        return done + len(texts)

    def _stored(self, of_text: np.ndarray, name: str) -> np.ndarray:
        """Convert what the model makes of a text to its stored form, and check it."""
        with np.errstate(over="ignore"):  # refused below
            stored = self.storage.stored(of_text)
        require_finite(of_text, f"encode {name}")
        require_finite(stored, f"{name} as {self.storage.dtype}")
        return stored

    def finish(self) -> None:
        """Write the files that turn the blocks into an index; call on one rank, once all ranks have written theirs."""
        rows = self.directory / ROWS
        save_array(rows, self.rows)
        files = [self.directory / where / name for where in self.storage.folders for name in self.names]
        made_of = self.made_of | {"texts": len(self.first), "blocks": self.names}
        folder.finish(self.directory, made_of, [rows, *files, *self.storage.files(self.directory)])


def encode_blocks(
    storage: Storage,
    ranker: VectorRanker,
    directory: Path,
    rank: int,
    ranks: int,
    *,
    documents: np.ndarray | None = None,
    beat: Callable[[], None] = lambda: None,
) -> None:
    """Make or resume the folder of an index, unless it is complete; all ranks must call this.

    Args:
        storage: the index's kind has one.
        ranker: embeds the documents of its collection.
        directory: the folder of the index, which all ranks share.
        rank: this rank.
        ranks: the number of ranks.
        documents: the numbers of the documents to index, int64, in the order of the index; by default all. A folder
            must not be used for different numbers.
        beat: called after every batch.

    Raises:
        InputError: the folder holds something else, or a vector is not finite.
    """
    with rank_0_first(rank, ranks):
        building = builder(storage, ranker, directory, documents)
    if building:
        building = replace(building, storage=storage.prepared(building, ranker, rank, ranks))
        building.write(rank, ranks, beat)
    wait_for(ranks)
    if building:
        building.storage.derive(building, rank, ranks)
    wait_for(ranks)
    if building and not rank:
        building.finish()
    wait_for(ranks)


def builder(
    storage: Storage, ranker: VectorRanker, directory: Path, documents: np.ndarray | None = None
) -> Builder | None:
    """Start or resume an index; None where it is complete; `documents` is as in `encode_blocks`."""
    numbers = np.arange(len(ranker.collection.corpus)) if documents is None else documents
    made_of = folder.about(ranker, len(numbers)) | {"dtype": storage.dtype}
    if ranker.precision != "fp32":
        made_of["precision"] = ranker.precision
    if ranker.dimensions:
        made_of["dimensions"] = ranker.dimensions
    if folder.begin(directory, made_of):
        return None
    for name in storage.folders:
        make_directory(directory / name)
    encoder, corpus = ranker.documents, ranker.collection.corpus

    def text(document: int) -> np.ndarray:
        return encoder.framing.cut(corpus.tokens(int(numbers[document])))

    return Builder(directory, storage, made_of, text, encoder, *distinct(map(text, range(len(numbers)))))
