"""Write an index of what a model makes of documents, in blocks; every rank encodes its own blocks.

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
from pathlib import Path
from typing import ClassVar

import numpy as np

from deepsiam.data_prep.common.files import make_directory, save_array
from deepsiam.data_prep.common.progress import Report, meter
from deepsiam.trainer.ranking.indexes import folder
from deepsiam.trainer.ranking.indexes.blocks import ROWS
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.retrieval.encode import distinct, require_finite
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, wait_for


class Writer(ABC):
    """Makes or resumes the folder of an index; every rank has a writer, and all ranks must call `write`."""

    BLOCK: ClassVar[int]  # texts in a block
    FOLDERS: ClassVar[tuple[str, ...]]  # of the files of a block, in the order written; "blocks" is last
    rows: np.ndarray  # int64 [documents], which of the distinct texts each document has
    first_documents: np.ndarray  # int64 [distinct texts], the first document with each

    def __init__(
        self,
        ranker: VectorRanker,
        directory: Path,
        dtype: str,
        rank: int = 0,
        ranks: int = 1,
        documents: np.ndarray | None = None,
    ) -> None:
        """Prepare to write a folder that all ranks share, of numbers stored as `dtype`.

        `documents` are the numbers of those to index, int64, in the order of the index; by default all. A folder must
        not be used for different numbers.
        """
        self.ranker, self.encoder, self.corpus = ranker, ranker.documents, ranker.collection.corpus
        self.directory, self.dtype, self.rank, self.ranks = directory, dtype, rank, ranks
        self.documents = np.arange(len(self.corpus)) if documents is None else documents
        self.made_of = folder.about(ranker, len(self.documents)) | {"dtype": dtype}
        if ranker.precision != "fp32":
            self.made_of["precision"] = ranker.precision
        if ranker.dimensions:
            self.made_of["dimensions"] = ranker.dimensions

    def write(self, beat: Callable[[], None] = lambda: None) -> None:
        """Make or resume the index, unless it is complete; call `beat` after every batch.

        Raises:
            InputError: the folder holds something else, or a vector is not finite.
        """
        with rank_0_first(self.rank, self.ranks):
            if self.begin():
                return
        self.prepare()
        self.write_blocks(beat)
        wait_for(self.ranks)
        self.derive()
        wait_for(self.ranks)
        if self.rank == 0:
            self.finish()
        wait_for(self.ranks)

    def begin(self) -> bool:
        """Start or resume the folder; return whether the index is complete."""
        if folder.begin(self.directory, self.made_of):
            return True
        for name in self.FOLDERS:
            make_directory(self.directory / name)
        self.rows, self.first_documents = distinct(map(self.text, range(len(self.documents))))
        return False

    def text(self, number: int) -> np.ndarray:
        """Return the token ids of a document, as the model reads them."""
        return self.encoder.framing.cut(self.corpus.tokens(int(self.documents[number])))

    @property
    def names(self) -> list[str]:
        """The file name of each block."""
        return [f"{i:06d}.npy" for i in range(-(-len(self.first_documents) // self.BLOCK))]

    def prepare(self) -> None:  # noqa: B027  most kinds need nothing
        """Make what the writing of blocks needs; all ranks must call this."""

    @abstractmethod
    def arrays(self, encoded_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays of a block, one for each folder, given the stored form of its texts."""

    def stored(self, encoded_text: np.ndarray) -> np.ndarray:
        """Convert what the model makes of a text, [m, ...]."""
        return encoded_text.astype(self.dtype)

    def derive(self) -> None:  # noqa: B027  likewise
        """Make the files that depend on all blocks, once these are written; all ranks must call this."""

    def sidecars(self) -> list[Path]:
        """Return the files that `prepare` and `derive` make and that the index needs."""
        return []

    def write_blocks(self, beat: Callable[[], None] = lambda: None) -> None:
        """Encode this rank's missing blocks."""
        blocks = self.directory / "blocks"
        blocks_to_write = [
            i for i, name in enumerate(self.names) if i % self.ranks == self.rank and not (blocks / name).is_file()
        ]
        progress = 0
        with meter("encode", "texts", sum(len(self._texts(i)) for i in blocks_to_write)) as report:
            for i in blocks_to_write:
                progress = self.write_block(i, report, progress, beat)

    def _texts(self, block: int) -> np.ndarray:
        return self.first_documents[block * self.BLOCK : (block + 1) * self.BLOCK]

    def write_block(self, block: int, report: Report, progress: int, beat: Callable[[], None]) -> int:
        """Encode a block after `progress` texts; return the number of texts done afterwards."""
        texts, name = [self.text(i) for i in self._texts(block).tolist()], self.names[block]
        stored: dict[int, np.ndarray] = {}
        for batch, encoded, counts in self.encoder.batches(texts):
            for number, encoded_text in zip(batch, np.split(encoded, counts.cumsum()[:-1]), strict=True):
                require_finite(encoded_text, f"encode {name}")
                with np.errstate(over="ignore"):  # refused below
                    stored[number] = self.stored(encoded_text)
                require_finite(stored[number], f"{name} as {self.dtype}")
            report(progress + len(stored), "")
            beat()
        arrays = self.arrays([stored[i] for i in range(len(texts))])
        for where, array in zip(self.FOLDERS, arrays, strict=True):
            save_array(self.directory / where / name, array)
        return progress + len(texts)

    def finish(self) -> None:
        """Write the files that turn the blocks into an index; call on one rank, once all ranks have written theirs."""
        save_array(self.directory / ROWS, self.rows)
        blocks = [self.directory / where / name for where in self.FOLDERS for name in self.names]
        made_of = self.made_of | {"texts": len(self.first_documents), "blocks": self.names}
        folder.finish(self.directory, made_of, [self.directory / ROWS, *blocks, *self.sidecars()])


class OneVector(Writer):
    """Writes a vector for each text."""

    BLOCK = 32_768  # some 100 MB at a width of 768
    FOLDERS = ("blocks",)

    def arrays(self, encoded_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        vectors = np.concatenate(encoded_texts)
        if len(vectors) != len(encoded_texts):
            raise ValueError(f"{len(encoded_texts)} texts have {len(vectors)} vectors, not one each")
        return [vectors]


class SeveralVectors(Writer):
    """Writes several vectors for each text, and where those of each text end."""

    BLOCK = 4096  # some 100 MiB
    FOLDERS = ("ends", "blocks")

    def arrays(self, encoded_texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [
            np.cumsum([len(encoded_text) for encoded_text in encoded_texts], dtype=np.int64),
            np.concatenate(encoded_texts),
        ]
