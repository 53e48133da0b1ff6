"""`manifest.json`: the shards of a folder with their sizes and hashes, and how they were made.

A manifest may come from anyone. It and tokenizer.json may have at most LARGEST_JSON bytes, which the parsers turn into
at most 2 GiB. It may list at most as many chunks as a reader can hold in memory.
"""

import hashlib
import json
import re
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import LARGEST_JSON, read_bytes, write_bytes
from deepsiam.data_prep.tokenizers import tokenizer

FORMAT = 2  # 1 had no groups
NAME = "manifest.json"
REBUILD = "build or copy the shards again"
MOST_CHUNKS = 1 << 24  # of all shards: 500 billion tokens in chunks of the usual size
MOST_CHUNKS_OF_A_SHARD = 1 << 16
TOKENIZER_FIELDS = ("fingerprint", "vocab_size", *tokenizer.SPECIAL_TOKENS)


@dataclass(frozen=True)
class ShardEntry:
    """One shard: its file name, its counts, and the size and SHA-256 (hex) of its file."""

    name: str
    chunks: int
    documents: int
    segments: int
    tokens: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The manifest of a folder of shards.

    `tokenizer` holds fingerprint, vocab_size, pad, unk, cls, sep and mask, null where it has none; `source` is
    free-form: what was read, with which options, how much was dropped, `dialogues`, whether segments are utterances,
    and `pairs`, whether each document is a query and a document; `sha256` is the hash of manifest.json itself.
    """

    directory: Path
    format: int
    tokenizer: dict[str, Any]
    source: dict[str, Any]
    shards: tuple[ShardEntry, ...]
    sha256: str

    @property
    def id_type(self) -> np.dtype:
        """The dtype of token ids: uint16 where the vocabulary fits, else uint32."""
        return tokenizer.id_type(self.tokenizer["vocab_size"])

    def total(self, field: str) -> int:
        """Return the sum over all shards of `documents`, `segments`, `tokens`, `chunks` or `bytes`."""
        return sum(getattr(entry, field) for entry in self.shards)

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Read and check DIRECTORY/manifest.json and the tokenizer.json next to it; open no shard.

        Raises:
            InputError: it is missing, damaged or of another format version; it lists no documents and is not a part of
                a data set; or tokenizer.json is not the one that the shards were written with.
        """
        path = Path(directory) / NAME
        content = _read(path)
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not JSON ({error}); {REBUILD}") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            version = record.get("format") if isinstance(record, dict) else None
            raise InputError(f"{path}: format version {reprlib.repr(version)}, this code reads {FORMAT}; {REBUILD}")
        description, source, shards = (record.get(key) for key in ("tokenizer", "source", "shards"))
        if not isinstance(description, dict) or not isinstance(source, dict) or not isinstance(shards, list):
            raise InputError(f"{path}: lacks tokenizer, source or shards; {REBUILD}")
        tok = tokenizer.load(path.with_name("tokenizer.json"))
        if description != describe(tok):
            raise InputError(
                f"{tok.path}: not the tokenizer the shards were written with (fingerprint "
                f"{tok.fingerprint[:12]}, the manifest has {reprlib.repr(description.get('fingerprint'))})"
            )
        entries = tuple(_entry(path, shard, tok.dtype.itemsize) for shard in shards)
        if len({entry.name for entry in entries}) != len(entries):
            raise InputError(f"{path}: lists a shard twice; {REBUILD}")
        if not sum(entry.documents for entry in entries) and not is_part(source):
            raise InputError(f"{path}: holds no documents; {REBUILD}")
        if sum(entry.chunks for entry in entries) > MOST_CHUNKS:
            raise InputError(f"{path}: lists more than {MOST_CHUNKS:,} chunks; build the shards of larger chunks")
        return cls(path.parent, FORMAT, description, source, entries, hashlib.sha256(content).hexdigest())


def is_part(source: Mapping[str, Any]) -> bool:
    """Return whether shards are one machine's part of a data set, which may be empty."""
    part = source.get("part")
    return isinstance(part, dict) and part.get("of") != 1


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:06d}.tar"


def shards_folder(directory: Path) -> Path:
    """Return `directory`, or `directory`/shards where only that has a manifest.json."""
    parent, child = Path(directory), Path(directory) / "shards"
    return child if (child / NAME).exists() and not (parent / NAME).exists() else parent


def describe(tok: tokenizer.Tokenizer) -> dict[str, Any]:
    """Return what a manifest records about its tokenizer."""
    return {name: getattr(tok, name) for name in TOKENIZER_FIELDS}


def write(directory: Path, tok: tokenizer.Tokenizer, source: Mapping[str, Any], shards: list[ShardEntry]) -> None:
    """Write DIRECTORY/manifest.json; raise InputError where the operating system refuses."""
    record = {
        "format": FORMAT,
        "tokenizer": describe(tok),
        "source": dict(source),
        "shards": [asdict(entry) for entry in shards],
    }
    write_bytes(directory / NAME, (json.dumps(record, indent=1) + "\n").encode())


def _read(path: Path) -> bytes:
    if not path.exists():
        child = path.parent / "shards" / NAME
        hint = f"; name {child.parent}" if child.exists() else "; is this a finished folder of shards?"
        raise InputError(f"{path}: no such file{hint}")
    return read_bytes(path, LARGEST_JSON)


def _entry(path: Path, record: Any, id_bytes: int) -> ShardEntry:
    """Check one shard's record: complete, a plain file name, and no larger counts than its bytes can hold."""
    types = {field.name: field.type for field in fields(ShardEntry)}
    if not isinstance(record, dict) or set(record) != set(types):
        raise InputError(f"{path}: a shard's record lacks or adds a key ({reprlib.repr(record)}); {REBUILD}")
    entry = ShardEntry(**record)
    counts = [entry.chunks, entry.documents, entry.segments, entry.tokens, entry.bytes]
    if not isinstance(entry.name, str) or not re.fullmatch(r"shard-[0-9]{6}\.tar", entry.name):
        raise InputError(f"{path}: {reprlib.repr(entry.name)} is not the name of a shard; {REBUILD}")
    if not all(type(count) is int and 0 <= count < 1 << 63 for count in counts):
        raise InputError(f"{path}: {entry.name} has a count that is not a whole number; {REBUILD}")
    if entry.chunks > MOST_CHUNKS_OF_A_SHARD:
        raise InputError(f"{path}: {entry.name} has more than {MOST_CHUNKS_OF_A_SHARD:,} chunks; build smaller shards")
    if not isinstance(entry.sha256, str) or not re.fullmatch("[0-9a-f]{64}", entry.sha256):
        raise InputError(f"{path}: {entry.name} has a sha256 that is not 64 hex digits; {REBUILD}")
    if entry.bytes < id_bytes * entry.tokens + 4 * (entry.segments + entry.documents) + 1024 * entry.chunks:
        raise InputError(f"{path}: {entry.name} claims more than its {entry.bytes} bytes can hold; {REBUILD}")
    return entry
