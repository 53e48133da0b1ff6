"""Make an index of a collection's documents; every rank encodes blocks of its own.

Ranks of several hosts share the work through one folder. A block that is there is not made again, so a stopped command
goes on, with any number of ranks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from data_prep.common.files import make_directory, sha256_of, whole_file
from data_prep.common.progress import Report, meter
from models.batching.framing import Framing
from models.matching.dual_encoder import DualEncoder
from models.vectors import Vectors
from trainer.checkpoints.load import LoadedModel
from trainer.retrieval.encode import encode_batches, require_finite
from trainer.retrieval.index import BLOCK, BUILDING, FORMAT, MANIFEST, ROWS, Index, fingerprint, read_about
from trainer.retrieval.texts import matching_of, on_device


@dataclass(frozen=True)
class Builder:
    """An index that is being made; every rank has one."""

    directory: Path
    about: dict[str, Any]  # what is made of what, for the manifest
    texts: Callable[[int], np.ndarray]  # the token ids of a document, as the model reads them
    encode: Callable[..., Vectors]
    framing: Framing
    rows: np.ndarray  # int64 [documents], which of the different texts each has
    first: np.ndarray  # int64 [different texts], the first document with each
    device: Any

    @property
    def files(self) -> list[Path]:
        """The files of all blocks."""
        return [self.directory / "blocks" / f"{i:06d}.npy" for i in range(-(-len(self.first) // BLOCK))]

    def write(self, rank: int, ranks: int, beat: Callable[[], None] = lambda: None) -> None:
        """Encode those blocks of this rank that are not there yet; rank 0 reports on its own.

        `beat` is called after every batch.
        """
        missing = [i for i, file in enumerate(self.files) if i % ranks == rank and not file.is_file()]
        total = sum(len(self._documents(i)) for i in missing)
        with meter("encode", "texts", total) if rank == 0 else nullcontext(_silent) as report:
            done = 0
            for i in missing:
                done = self._write(i, report, done, beat)

    def _documents(self, block: int) -> np.ndarray:
        return self.first[block * BLOCK : (block + 1) * BLOCK]

    def _write(self, block: int, report: Report, done: int, beat: Callable[[], None]) -> int:
        """Encode a block, after `done` texts; return how many are done then."""
        texts = [self.texts(i) for i in self._documents(block).tolist()]
        vectors: dict[int, np.ndarray] = {}
        for batch, encoded, _ in encode_batches(self.encode, self.framing, texts, device=self.device):
            vectors.update(zip(batch, encoded[:, 0], strict=True))
            report(done + len(vectors), "")
            beat()
        file, array = self.files[block], np.stack([vectors[i] for i in range(len(texts))])
        stored = array.astype(self.about["dtype"])
        require_finite(array, f"encode {file.name}")
        require_finite(stored, f"{file.name} as {self.about['dtype']}")
        with whole_file(file) as opened:
            np.save(opened, stored)
        return done + len(texts)

    def finish(self) -> Index:
        """Write what makes the blocks an index, unless it is one; call it on one rank, when all have written theirs."""
        if (self.directory / MANIFEST).is_file():
            return Index.open(self.directory)
        with whole_file(self.directory / ROWS) as opened:
            np.save(opened, self.rows)
        blocks = [file.name for file in self.files]
        sha256 = {file.name: sha256_of(file) for file in [self.directory / ROWS, *self.files]}
        manifest = self.about | {"texts": len(self.first), "blocks": blocks, "sha256": sha256}
        with whole_file(self.directory / MANIFEST) as opened:
            opened.write((json.dumps(manifest, indent=1) + "\n").encode())
        (self.directory / BUILDING).unlink(missing_ok=True)
        return Index.open(self.directory)


def build(
    trained: LoadedModel,
    collection: Collection,
    directory: Path,
    rank: int,
    ranks: int,
    *,
    dtype: str = "float32",
    documents: np.ndarray | None = None,
    beat: Callable[[], None] = lambda: None,
) -> Index:
    """Make an index, or resume one, and open it; all ranks call. The arguments and errors are those of `builder`.

    `beat` is called after every batch.
    """

    def wait() -> None:
        if ranks > 1:
            dist.barrier()

    if rank:
        wait()  # until rank 0 has begun the folder, or refused it
    building = builder(trained, collection, directory, dtype, documents)
    if not rank:
        wait()
    building.write(rank, ranks, beat)
    wait()
    if not rank:
        building.finish()
    wait()
    return Index.open(directory)


def builder(
    trained: LoadedModel,
    collection: Collection,
    directory: Path,
    dtype: str = "float32",
    documents: np.ndarray | None = None,
) -> Builder:
    """Start an index, or resume one.

    Args:
        trained: embeds the documents.
        collection: has them.
        directory: the folder of the index.
        dtype: one of DTYPES.
        documents: the numbers of the documents to index, int64, whose order is that of the index; by default all. A
            folder must not be used for different ones.

    Raises:
        InputError: the model has not one vector a text, its tokenizer is not the collection's, or the folder holds
            something else.
    """
    model, method = matching_of(trained, collection)
    if not isinstance(model, DualEncoder) or model.index != "dense":
        raise InputError(f"{trained.checkpoint}: a {trained.kind} has not one vector for each text, as an index needs")
    numbers = np.arange(len(collection.corpus)) if documents is None else documents
    about = {
        "format": FORMAT,
        "model": {"checkpoint": str(trained.checkpoint.resolve()), "fingerprint": fingerprint(trained)},
        "collection": {"directory": str(collection.directory.resolve()), "sha256": collection.sha256},
        "dtype": dtype,
        "documents": len(numbers),
    }
    _begin(directory, about)
    framing = method.document_framing(trained.tokenizer)

    def text(document: int) -> np.ndarray:
        return framing.cut(collection.corpus.tokens(int(numbers[document])))

    rows, first = _different(text, len(numbers))
    return Builder(directory, about, text, model.embed_documents, framing, rows, first, on_device(model))


def _begin(directory: Path, about: dict[str, Any]) -> None:
    """Make the folder of an index, or check that the folder holds an index of the same."""
    for name in (MANIFEST, BUILDING):
        if (directory / name).is_file():
            there = read_about(directory / name)
            for key, what in {"model": "model", "collection": "collection", "dtype": "--dtype"}.items():
                if _identity(there, key) != _identity(about, key):
                    raise InputError(f"{directory}: holds an index with another {what}: name another folder")
            return
    if directory.exists() and any(file.name != "blocks" for file in directory.iterdir()):
        raise InputError(f"{directory}: holds something that is not an index: name another folder")
    make_directory(directory / "blocks")
    with whole_file(directory / BUILDING) as file:
        file.write(json.dumps(about).encode())


def _identity(about: dict[str, Any], key: str) -> Any:
    """What tells a model or a collection from others, wherever it is now."""
    value = about[key]
    return (value.get("fingerprint"), value.get("sha256")) if isinstance(value, dict) else value


def _different(text: Callable[[int], np.ndarray], documents: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the different texts by their first documents: the number of each document's, and those documents."""
    keys = np.empty((documents, 2), np.uint64)
    for i in range(documents):
        digest = hashlib.blake2b(text(i).astype(np.uint32).tobytes(), digest_size=16).digest()
        keys[i] = np.frombuffer(digest, np.uint64)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    return rank[inverse.reshape(-1)], first[order]


def _silent(done: int, note: str) -> None:
    """Report nothing: only rank 0 speaks."""
