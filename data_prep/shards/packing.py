"""Pack documents into the chunks of a shard, and chunks into its tar."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of, whole_file
from deepsiam.data_prep.common.webdataset_without_torch import TarWriter
from deepsiam.data_prep.shards import chunk
from deepsiam.data_prep.shards.document import TokenDocument, to_json
from deepsiam.data_prep.shards.manifest import ShardEntry


@dataclass(frozen=True)
class Chunk:
    """Documents as two members of a tar: the .npz of chunk.py and the .json of document.py."""

    npz: bytes
    json: bytes
    documents: int
    segments: int
    tokens: int


class Packer:
    """Pack documents into chunks; the document that brings a chunk to `chunk_tokens` closes it. No document is cut.

    `where` is the folder of shards that an InputError names.
    """

    def __init__(self, id_type: np.dtype, chunk_tokens: int, where: Path) -> None:
        self.id_type, self.chunk_tokens, self.where = id_type, chunk_tokens, where
        self._documents: list[TokenDocument] = []  # of the open chunk
        self._tokens = 0

    def add(self, document: TokenDocument) -> Iterator[Chunk]:
        """Append a document; yield the chunk if the document closes it."""
        self._documents.append(document)
        self._tokens += sum(map(len, document.segments))
        if self._tokens >= self.chunk_tokens:
            yield from self.close()

    def close(self) -> Iterator[Chunk]:
        """Yield the open chunk unless it is empty."""
        documents, self._documents, self._tokens = self._documents, [], 0
        if documents:
            yield encode_chunk(documents, self.id_type, self.where)


def chunks(documents: Iterable[TokenDocument], id_type: np.dtype, chunk_tokens: int, where: Path) -> Iterator[Chunk]:
    """Yield the chunks of all documents, as `Packer` makes them."""
    packer = Packer(id_type, chunk_tokens, where)
    for document in documents:
        yield from packer.add(document)
    yield from packer.close()


def encode_chunk(documents: Sequence[TokenDocument], id_type: np.dtype, where: Path) -> Chunk:
    """Return documents as one chunk; raise InputError where it is larger than a reader accepts."""
    npz, json = chunk.encode([document.segments for document in documents], id_type), to_json(documents)
    if max(len(npz), len(json)) > chunk.LARGEST:
        raise InputError(
            f"{where}: the chunk with document {documents[0].id:.80} has over {chunk.LARGEST:,} bytes: "
            "make chunks of fewer tokens, or split its longest document"
        )
    lengths = [len(segment) for document in documents for segment in document.segments]
    return Chunk(npz, json, len(documents), len(lengths), sum(lengths))


def write_shard(path: Path, number: int, contents: Sequence[Chunk]) -> ShardEntry:
    """Write one shard, the sample of chunk c named `sssssscccccc`, and return its manifest entry."""
    with whole_file(path) as file, plain_tar(file) as tar:
        for index, packed in enumerate(contents):
            key = f"{number:06d}{index:06d}"
            tar.write({"__key__": key, "npz": packed.npz})  # apart: one call would sort the .json before the .npz
            tar.write({"__key__": key, "json": packed.json})
    return ShardEntry(
        path.name,
        len(contents),
        documents=sum(packed.documents for packed in contents),
        segments=sum(packed.segments for packed in contents),
        tokens=sum(packed.tokens for packed in contents),
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
    )


def plain_tar(file: BinaryIO) -> TarWriter:
    """Return a writer of samples, whose headers do not depend on who writes them or when."""
    return TarWriter(file, user="", group="", mode=0o644, mtime=0)
