"""Read shards: WebDataset tars of token ids that a manifest lists, verified and read at random.

A shard holds chunks of consecutive documents. Chunk c of shard s is the sample `sssssscccccc`: an .npz (see chunk.py)
and a .json (see document.py). Tars have no timestamps, owners or extended headers, so the same documents give the same
bytes. webdataset reads a shard from start to end; to resume in the middle, `read` seeks by an index of the headers.

Shards and manifests may come from anyone. Reading takes at most 2 GiB whatever they hold (the bounds: chunk.py,
manifest.py), runs none of their code, writes no file, and opens no file outside the folder.
"""

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import os_errors_as_input_errors, sha256_of
from deepsiam.data_prep.common.webdataset_without_torch import group_by_keys, tar_file_expander
from deepsiam.data_prep.shards import chunk
from deepsiam.data_prep.shards.document import TokenDocument, from_json
from deepsiam.data_prep.shards.manifest import REBUILD, Manifest, ShardEntry

# the tar's first bytes are a name: one of digits cannot begin a compressed file, which tarfile would inflate
MEMBER = re.compile(r"[0-9]{12}\.(npz|json)", re.ASCII)


@dataclass(frozen=True)
class Shard:
    """A shard as its manifest lists it. It keeps no file open, so it may be pickled or forked."""

    manifest: Manifest
    entry: ShardEntry
    path: Path  # the tar
    members: tuple[dict[str, tuple[int, int]], ...]  # of each chunk: extension -> (offset, size) in the tar

    @classmethod
    def open(cls, manifest: Manifest, index: int) -> "Shard":
        """Check the size and SHA-256 of shard `index`, and index its headers; raise InputError where they differ."""
        entry = manifest.shards[index]
        path = manifest.directory / entry.name
        if not path.is_file():
            raise InputError(f"{path}: missing; {REBUILD}")
        _check_size(path, entry)
        if sha256_of(path) != entry.sha256:
            raise InputError(f"{path}: its SHA-256 is not the one in the manifest (damaged); {REBUILD}")
        return cls.of_verified_file(manifest, entry, path)

    @classmethod
    def of_verified_file(cls, manifest: Manifest, entry: ShardEntry, path: Path) -> "Shard":
        """Index the tar headers of a file whose SHA-256 was checked; raise InputError as `open` does."""
        _check_size(path, entry)
        try:
            members = _index(path, entry.chunks)
        except (tarfile.TarError, ValueError) as error:
            raise InputError(f"{path}: not a tar of chunks ({error}); {REBUILD}") from error
        if len(members) != entry.chunks:
            raise InputError(f"{path}: {len(members)} chunks, the manifest lists {entry.chunks}; {REBUILD}")
        return cls(manifest, entry, path, members)

    def __len__(self) -> int:
        """The number of chunks."""
        return len(self.members)

    def read(self, number: int) -> list[TokenDocument]:
        """Return the documents of one chunk; their segments are read-only arrays of `manifest.id_type`."""
        return self._decoded(number, self._member(number, "npz"), self._member(number, "json"))

    def chunks(self) -> Iterator[list[TokenDocument]]:
        """Yield the documents of each chunk, read by webdataset from the start; raise InputError as `read` does."""
        number = 0
        with os_errors_as_input_errors(self.path, "read"), open(self.path, "rb") as file:
            try:
                for sample in group_by_keys(tar_file_expander([{"url": self.path, "stream": file}])):
                    yield self._decoded(number, sample.get("npz", b""), sample.get("json", b""))
                    number += 1
            except (tarfile.TarError, ValueError) as error:
                raise InputError(f"{self.path}: chunk {number}: {error.args[0]}; {REBUILD}") from error
        if number != len(self):
            raise InputError(f"{self.path}: {number} chunks in order, its headers list {len(self)}; {REBUILD}")

    def documents(self) -> Iterator[TokenDocument]:
        """Yield every document of the shard; raise InputError as `read` does."""
        for documents in self.chunks():
            yield from documents

    def _decoded(self, number: int, npz: bytes, json: bytes) -> list[TokenDocument]:
        try:
            texts = chunk.decode(npz, self.manifest.tokenizer["vocab_size"], self.manifest.id_type)
            return from_json(json, texts)
        except ValueError as error:
            raise InputError(f"{self.path}: chunk {number}: {error}; {REBUILD}") from error

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
        raise InputError(f"{path}: {path.stat().st_size} bytes, the manifest lists {entry.bytes}; {REBUILD}")


def _index(path: Path, chunks: int) -> tuple[dict[str, tuple[int, int]], ...]:
    """Return where the members of at most `chunks` chunks are, from the tar headers alone.

    TarFile is not used: it reads extended headers of any size and follows them by recursion.

    Raises:
        ValueError: a member is not a part of a chunk, or is too large or cut short.
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
            in_order = extension not in sample and sample is next(reversed(samples.values()))
            if member.type != tarfile.REGTYPE or not MEMBER.fullmatch(member.name) or not in_order:
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
