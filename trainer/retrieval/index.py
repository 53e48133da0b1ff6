"""An index: the embeddings of a collection's documents, in files of a block each, and exact search in them.

blocks/NNNNNN.npy   fp32 or fp16 [up to BLOCK, H]: the vectors of the different texts, by their first documents
rows.npy            int64 [documents]: which of the different texts each document has
manifest.json       the model, the collection, and the SHA-256 of these files; it is written last
approximate-KIND.faiss   optional: see approximate.py
building.json       instead of it, while blocks are missing: what they are made of

build_index.py makes it. Documents whose texts are equal, as the model reads them, have one vector, so
their scores are equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.common.errors import InputError
from data_prep.common.files import LARGEST_JSON, read_bytes
from trainer.checkpoints.load import LoadedModel
from trainer.retrieval import approximate
from trainer.retrieval.search import CORPUS_BLOCK, Ranked, search

FORMAT = 1
BLOCK = CORPUS_BLOCK  # texts
MANIFEST, BUILDING, ROWS = "manifest.json", "building.json", "rows.npy"
DTYPES = ("float32", "float16")


class Blocks(Sequence[np.ndarray]):
    """The vectors of all blocks, memory-mapped, as one array of rows."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Open the files, in order; all but the last have `BLOCK` rows."""
        self.arrays = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
        self.length = sum(map(len, self.arrays))

    def __len__(self) -> int:
        """The number of rows."""
        return self.length

    def __getitem__(self, part):  # type: ignore[no-untyped-def]  # rows by a slice, as of an array
        """Some rows, [n, H]."""
        start, stop, _ = part.indices(self.length)
        first, last = start // BLOCK, max(start, stop - 1) // BLOCK
        pieces = self.arrays[first : last + 1]
        rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return rows[start - first * BLOCK : stop - first * BLOCK]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Those of some rows, int64 [n], each block's at once."""
        taken = np.empty((len(rows), self.arrays[0].shape[1]), self.arrays[0].dtype)
        for block in np.unique(rows // BLOCK).tolist():
            of_block = rows // BLOCK == block
            taken[of_block] = self.arrays[block][rows[of_block] - block * BLOCK]
        return taken


@dataclass(frozen=True)
class Index:
    """An opened index."""

    directory: Path
    manifest: dict[str, Any]
    vectors: Blocks
    rows: np.ndarray  # int64 [documents]

    @classmethod
    def open(cls, directory: Path) -> Index:
        """Open an index.

        Raises:
            InputError: the folder is not an index, or an unfinished or damaged one.
        """
        if not (directory / MANIFEST).is_file():
            if (directory / BUILDING).is_file():
                raise InputError(f"{directory}: an unfinished index: run trainer.index again, it goes on")
            raise InputError(
                f"{directory}: not an index; run: python -m trainer.index RUN --collection C --out {directory}"
            )
        manifest = read_about(directory / MANIFEST)
        try:
            rows = np.load(directory / ROWS, mmap_mode="r", allow_pickle=False)
            vectors = Blocks([directory / "blocks" / name for name in manifest["blocks"]])
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{directory}: damaged ({error}); make the index again, in another folder") from error
        if len(rows) != manifest["documents"] or len(vectors) != manifest["texts"]:
            raise InputError(f"{directory}: damaged (its number of vectors); make the index again, in another folder")
        return cls(directory, manifest, vectors, rows)

    def __str__(self) -> str:
        """What it holds."""
        different, dtype = self.manifest["texts"], self.manifest["dtype"]
        width = self.vectors.arrays[0].shape[1]
        return f"{len(self.rows):,} documents of {different:,} different texts, {width} x {dtype} each"

    @cached_property
    def _documents_of_texts(self) -> tuple[np.ndarray, np.ndarray]:
        """The documents sorted by text, int64 [documents], and where those of each text end, int64 [texts]."""
        return np.argsort(self.rows, kind="stable"), np.bincount(self.rows, minlength=len(self.vectors)).cumsum()

    def search(self, queries: np.ndarray, k: int, kind: str | None = None) -> list[Ranked]:
        """Find the k best documents for each query fp32 [Q, H], equal scores in the collection's order.

        Exact, or with a `kind` of approximate search that trainer.index has prepared; its errors are those of
        `approximate.search`.
        """
        order, ends = self._documents_of_texts
        if kind:
            found = approximate.search(approximate.file_of(self.directory, kind), queries, self.vectors, k)
        else:
            found = search(queries, self.vectors, k).each()  # type: ignore[arg-type]  # it reads rows by slices alone
        return [_documents(ranked, order, ends, k) for ranked in found]


def _documents(texts: Ranked, order: np.ndarray, ends: np.ndarray, k: int) -> Ranked:
    """Put all documents of each text in its place, and keep the best k."""
    starts = np.where(texts.documents > 0, ends[texts.documents - 1], 0)
    counts = ends[texts.documents] - starts
    documents = np.concatenate([order[start : start + n] for start, n in zip(starts, counts, strict=True)])
    scores = np.repeat(texts.scores, counts)
    best = np.lexsort((documents, -scores))[:k]
    return Ranked(documents[best], scores[best])


def fingerprint(trained: LoadedModel) -> str:
    """The SHA-256 of a model's weights and of its method's keys: two models with the same give the same vectors."""
    digest = hashlib.sha256(json.dumps(trained.method.model_dump(mode="json"), sort_keys=True).encode())
    for name, tensor in sorted(trained.model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def read_about(path: Path) -> dict[str, Any]:
    """What MANIFEST or BUILDING says; raise InputError where it is not an index's."""
    try:
        about = json.loads(read_bytes(path, LARGEST_JSON))
        version = about["format"]
        _ = about["model"]["fingerprint"], about["collection"]["sha256"], about["documents"]
        _ = path.name == BUILDING or (about["blocks"], about["texts"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: damaged, or not an index's; make the index again, in another folder") from error
    if version != FORMAT:
        raise InputError(f"{path}: its format is version {version}, this code reads {FORMAT}; make the index again")
    return about
