"""Write shards: documents into chunks, chunks into tars, the manifest last."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, read_bytes, write_bytes
from deepsiam.data_prep.shards import manifest
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import MOST_CHUNKS_OF_A_SHARD, Manifest, ShardEntry
from deepsiam.data_prep.shards.packing import Chunk, Packer, write_shard
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer


class ShardWriter:
    """Pack documents into chunks and chunks into shards, and list the shards in a manifest at the end.

    A context manager: if its block raises or the disk is full, every file that it wrote is removed. A chunk closes
    with the document that brings it to `chunk_tokens`; documents are never cut. `source` may be filled until the
    writer closes.
    """

    def __init__(
        self,
        directory: Path,
        tokenizer: Tokenizer,
        chunk_tokens: int = 32768,
        chunks_per_shard: int = 1024,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise InputError where `directory` has shards or cannot be created, or shards would be too large to read."""
        self.directory = Path(directory)
        self.tokenizer = tokenizer
        self.chunks_per_shard = min(chunks_per_shard, manifest.MOST_CHUNKS)
        self.source = source if source is not None else {}
        self._packer = Packer(tokenizer.dtype, chunk_tokens, self.directory)
        self._chunks: list[Chunk] = []  # of the open shard
        self._entries: list[ShardEntry] = []
        if chunks_per_shard > MOST_CHUNKS_OF_A_SHARD:
            raise InputError(f"{directory}: a shard has at most {MOST_CHUNKS_OF_A_SHARD:,} chunks; ask for fewer")
        make_directory(self.directory)
        if any(self.directory.glob("shard-*.tar")) or (self.directory / manifest.NAME).exists():
            raise InputError(f"{self.directory}: already holds shards; remove them or write elsewhere")

    def __enter__(self) -> "ShardWriter":
        """Return the writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the writer, or remove what it wrote if the block raised."""
        if kind is None:
            self.close()
        else:
            self._remove()

    def add(self, document_id: str, segments: Sequence[np.ndarray | Sequence[int]]) -> None:
        """Append one document; raise ValueError for a token id beyond the vocabulary."""
        arrays = [np.asarray(segment, np.int64) for segment in segments]
        for ids in arrays:
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.tokenizer.vocab_size:
                raise ValueError(f"document {document_id}: a token id is beyond the vocabulary")
        self._append(self._packer.add(TokenDocument(arrays, document_id)))

    def close(self) -> Manifest:
        """Write the open chunk and shard, then tokenizer.json and the manifest; raise InputError for no documents."""
        try:
            self._append(self._packer.close())
            self._end_shard()
            if not self._entries:
                raise InputError(f"{self.directory}: no documents to write")
            content = read_bytes(self.tokenizer.path)
            if hashlib.sha256(content).hexdigest() != self.tokenizer.fingerprint:
                raise InputError(f"{self.tokenizer.path}: changed while shards were written; start again")
            write_bytes(self.directory / "tokenizer.json", content)
            manifest.write(self.directory, self.tokenizer, self.source, self._entries)
            return Manifest.load(self.directory)
        except BaseException:
            self._remove()
            raise

    def _append(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._chunks.append(chunk)
            if len(self._chunks) >= self.chunks_per_shard:
                self._end_shard()

    def _end_shard(self) -> None:
        if self._chunks:
            number = len(self._entries)
            path = self.directory / manifest.shard_name(number)
            self._entries.append(write_shard(path, number, self._chunks))
            self._chunks = []

    def _remove(self) -> None:
        """Remove all shards: the folder had none before this writer."""
        for pattern in ("shard-*.tar", "tokenizer.json", manifest.NAME):
            for path in self.directory.glob(pattern):
                path.unlink(missing_ok=True)
