"""The shard format: WebDataset tars of token ids beside a manifest; written whole, read at random, verified.

A shard holds chunks of consecutive documents. Chunk c of shard s is the sample `sssssscccccc`: an .npz (see
chunk.py) and a .json with the ids of its documents. Tars have no timestamps, owners or extended headers, so
the same documents give the same bytes.

Anyone may have written a shard, and the manifest that vouches for it. Reading takes at most 2 GiB whatever they hold
(the parts: chunk.py, manifest.py), runs none of their code, writes no file, and opens none but those of the folder.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from data_prep import chunk, manifest, packing
from data_prep.chunk import TokenDocument
from data_prep.errors import InputError
from data_prep.files import make_directory, os_errors_as_input_errors, read_bytes, sha256_of, whole_file
from data_prep.manifest import MOST_CHUNKS_OF_A_SHARD, REBUILD, Manifest, ShardEntry
from data_prep.packing import Chunk, Marks, TokenizedDocument, encode_chunk, write_shard
from data_prep.progress import track
from data_prep.tokenizer import Tokenizer

__all__ = ["Manifest", "Shard", "ShardEntry", "ShardWriter", "TokenDocument", "verify"]


@dataclass(frozen=True)
class Shard:
    """A shard that the manifest vouches for. Holds no open file, so it may be pickled or forked."""

    manifest: Manifest
    entry: ShardEntry
    path: Path  # the tar
    members: tuple[dict[str, tuple[int, int]], ...]  # of each chunk: extension -> (offset, size) in the tar

    @classmethod
    def open(cls, manifest: Manifest, index: int) -> "Shard":
        """Checks the size and SHA-256 of shard `index`, then indexes its tar headers.

        Raises:
            InputError: the shard is missing, is not what the manifest lists, or is no tar of chunks.
        """
        entry = manifest.shards[index]
        path = manifest.directory / entry.name
        if not path.is_file():
            raise InputError(f"{path}: missing; {REBUILD}")
        _check_size(path, entry)
        if sha256_of(path) != entry.sha256:
            raise InputError(f"{path}: its SHA-256 is not the one in the manifest (damaged); {REBUILD}")
        return cls.of_file(manifest, entry, path)

    @classmethod
    def of_file(cls, manifest: Manifest, entry: ShardEntry, path: Path) -> "Shard":
        """Indexes the tar headers of a file, wherever it lies, whose SHA-256 has been checked; InputError as `open`."""
        _check_size(path, entry)
        try:
            members = _index(path, entry.chunks)
        except (tarfile.TarError, ValueError) as error:
            raise InputError(f"{path}: not a tar of chunks ({error}); {REBUILD}") from error
        if len(members) != entry.chunks:
            raise InputError(f"{path}: {len(members)} chunks, the manifest says {entry.chunks}; {REBUILD}")
        return cls(manifest, entry, path, members)

    def __len__(self) -> int:
        """The number of chunks."""
        return len(self.members)

    def read(self, number: int) -> list[TokenDocument]:
        """The documents of one chunk: lists of segments, read-only arrays of `manifest.id_type`.

        Raises:
            InputError: the chunk cannot be read or holds what a writer would not have written.
        """
        try:
            vocab_size = self.manifest.tokenizer["vocab_size"]
            return chunk.decode(self._member(number, "npz"), vocab_size, self.manifest.id_type)
        except ValueError as error:
            raise InputError(f"{self.path}: chunk {number}: {error}; {REBUILD}") from error

    def provenance(self, number: int) -> dict[str, Any]:
        """Where one chunk's documents come from: {"documents": [id, ...]}; InputError where unreadable."""
        try:
            record = json.loads(self._member(number, "json"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path}: chunk {number}: provenance is not JSON; {REBUILD}") from error
        names = record.get("documents") if isinstance(record, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{self.path}: chunk {number}: provenance lists no document ids; {REBUILD}")
        return record

    def marks(self, number: int, documents: Sequence[TokenDocument]) -> list[Marks]:
        """What is known of the segments of one chunk's documents, as `read` gives them; InputError where unreadable."""
        try:
            return packing.marks(documents, self.provenance(number))
        except ValueError as error:
            raise InputError(f"{self.path}: chunk {number}: {error}; {REBUILD}") from error

    def documents(self) -> Iterator[TokenizedDocument]:
        """Every document of the shard with all that is known of it.

        Raises:
            InputError: a chunk cannot be read, or its documents have no keys, which only a preparation gives them.
        """
        for number in range(len(self)):
            try:
                yield from packing.documents(self.read(number), self.provenance(number))
            except ValueError as error:
                raise InputError(f"{self.path}: chunk {number}: {error}; prepare the data set again") from error

    def _member(self, number: int, extension: str) -> bytes:
        offset, size = self.members[number][extension]
        with os_errors_as_input_errors(self.path, "read"), open(self.path, "rb") as file:
            file.seek(offset)
            content = file.read(size)
        if len(content) != size:
            raise InputError(f"{self.path}: chunk {number} is cut short (the file changed); {REBUILD}")
        return content


def _check_size(path: Path, entry: ShardEntry) -> None:
    if path.stat().st_size != entry.bytes:
        raise InputError(f"{path}: {path.stat().st_size} bytes, the manifest says {entry.bytes}; {REBUILD}")


def _index(path: Path, chunks: int) -> tuple[dict[str, tuple[int, int]], ...]:
    """Where the members of at most `chunks` chunks lie, from the tar headers alone; ValueError for a foreign member.

    The headers are walked here, not by TarFile: that reads extended headers of any size and follows them in recursion.
    """
    samples: dict[str, dict[str, tuple[int, int]]] = {}
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        total = file.seek(0, io.SEEK_END)
        offset = 0
        while (header := _block(file, offset)).strip(b"\0"):
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            offset += tarfile.BLOCKSIZE
            key, _, extension = member.name.partition(".")
            sample = samples.setdefault(key, {})
            if member.type != tarfile.REGTYPE or extension not in ("npz", "json") or extension in sample:
                raise ValueError(f"unexpected member {member.name!r:.80}")
            if not 0 <= member.size <= total - offset:
                raise ValueError(f"{member.name} is cut short")
            if member.size > chunk.LARGEST:
                raise ValueError(f"{member.name} has over {chunk.LARGEST:,} bytes")
            if len(samples) > chunks:
                raise ValueError(f"more chunks than the {chunks} of the manifest")
            sample[extension] = (offset, member.size)
            offset += -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    for key, sample in samples.items():
        if len(sample) != 2:
            raise ValueError(f"sample {key!r:.80} lacks its npz or json")
    return tuple(samples.values())


def _block(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    return file.read(tarfile.BLOCKSIZE)


class ShardWriter:
    """Packs documents into chunks, chunks into shards, and vouches for them with a manifest at the end.

    A context manager: when its block raises, or the disk fills up, every file written is removed again. A
    chunk closes with the document that brings it to `chunk_tokens`; documents are never cut. `source` may
    be filled until the writer closes.
    """

    def __init__(
        self,
        directory: Path,
        tokenizer: Tokenizer,
        chunk_tokens: int = 32768,
        chunks_per_shard: int = 1024,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises InputError where `directory` holds shards or cannot be created, or shards are too large to read."""
        self.directory = Path(directory)
        self.tokenizer = tokenizer
        self.chunk_tokens = chunk_tokens
        self.chunks_per_shard = min(chunks_per_shard, manifest.MOST_CHUNKS)
        self.source = source if source is not None else {}
        self._open: list[TokenizedDocument] = []  # of the chunk that is not full yet
        self._tokens = 0
        self._chunks: list[Chunk] = []  # of the open shard
        self._entries: list[ShardEntry] = []
        if chunks_per_shard > MOST_CHUNKS_OF_A_SHARD:
            raise InputError(f"{directory}: a shard has at most {MOST_CHUNKS_OF_A_SHARD:,} chunks; ask for fewer")
        make_directory(self.directory)
        if any(self.directory.glob("shard-*.tar")) or (self.directory / manifest.NAME).exists():
            raise InputError(f"{self.directory}: already holds shards; remove them or write elsewhere")

    def __enter__(self) -> "ShardWriter":
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the writer, or removes what it wrote where the block raised."""
        if kind is None:
            self.close()
        else:
            self._remove()

    def add(self, document_id: str, segments: Sequence[np.ndarray | Sequence[int]]) -> None:
        """Appends one document; ValueError for a token id beyond the vocabulary."""
        document = [np.asarray(segment, np.int64) for segment in segments]
        for ids in document:
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.tokenizer.vocab_size:
                raise ValueError(f"document {document_id}: a token id is beyond the vocabulary")
        self._open.append(TokenizedDocument(document_id, document))
        self._tokens += sum(map(len, document))
        if self._tokens >= self.chunk_tokens:
            self._end_chunk()

    def close(self) -> Manifest:
        """Writes what is still open, then tokenizer.json and the manifest; InputError for no documents."""
        try:
            self._end_chunk()
            self._end_shard()
            if not self._entries:
                raise InputError(f"{self.directory}: no documents to write")
            content = read_bytes(self.tokenizer.path)
            if hashlib.sha256(content).hexdigest() != self.tokenizer.fingerprint:
                raise InputError(f"{self.tokenizer.path}: changed while shards were written; start again")
            with whole_file(self.directory / "tokenizer.json") as file:
                file.write(content)
            manifest.write(self.directory, self.tokenizer, self.source, self._entries)
            return Manifest.load(self.directory)
        except BaseException:
            self._remove()
            raise

    def _end_chunk(self) -> None:
        if self._open:
            self._chunks.append(encode_chunk(self._open, self.tokenizer.dtype, self.directory))
            self._open, self._tokens = [], 0
        if len(self._chunks) >= self.chunks_per_shard:
            self._end_shard()

    def _end_shard(self) -> None:
        if self._chunks:
            number = len(self._entries)
            path = self.directory / manifest.shard_name(number)
            self._entries.append(write_shard(path, number, self._chunks))
            self._chunks = []

    def _remove(self) -> None:
        """There were no shards in the folder before: all that are there now were written here."""
        for pattern in ("shard-*.tar", "tokenizer.json", manifest.NAME):
            for path in self.directory.glob(pattern):
                path.unlink(missing_ok=True)


def verify(directory: Path) -> list[tuple[str, str]]:
    """Reads every byte and every chunk, and returns all that is wrong as (shard, problem).

    Raises:
        InputError: there is no manifest to verify against.
    """
    listed = Manifest.load(directory)
    problems = []
    for index, entry in enumerate(track(listed.shards, "verify", "shards")):
        try:
            found = _count(Shard.open(listed, index))
        except InputError as error:
            problems.append((entry.name, str(error)))
            continue
        for field, number in found.items():
            if number != getattr(entry, field):
                reason = f"{number} {field}, the manifest says {getattr(entry, field)}"
                problems.append((entry.name, f"{listed.directory / entry.name}: {reason}; {REBUILD}"))
    names = {entry.name for entry in listed.shards}
    for path in sorted(listed.directory.glob("shard-*.tar")):
        if path.name not in names:
            problems.append((path.name, f"{path}: not in the manifest; remove it"))
    return problems


def _count(shard: Shard) -> dict[str, int]:
    """Decodes every chunk of a shard; InputError at the first that cannot be."""
    counts = dict.fromkeys(("documents", "segments", "tokens"), 0)
    for number in range(len(shard)):
        documents = shard.read(number)
        if len(shard.provenance(number)["documents"]) != len(documents):
            raise InputError(f"{shard.path}: chunk {number}: provenance is of another length; {REBUILD}")
        counts["documents"] += len(documents)
        counts["segments"] += sum(map(len, documents))
        counts["tokens"] += sum(len(segment) for document in documents for segment in document)
    return counts
