"""`manifest.json`: what a folder of shards holds, and the one thing that vouches for it.

Anyone may have written it. The file and tokenizer.json are read up to LARGEST_JSON bytes, which the parsers make at
most 2 GiB of, and it may list no more chunks than those who read them can keep in mind.
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

from data_prep import tokenizer
from data_prep.errors import InputError
from data_prep.files import LARGEST_JSON, read_bytes, whole_file

FORMAT = 1
NAME = "manifest.json"
REBUILD = "build or copy the shards again"
MOST_CHUNKS = 1 << 24  # of all shards: 500 billion tokens in chunks of the usual size
MOST_CHUNKS_OF_A_SHARD = 1 << 16
TOKENIZER_FIELDS = ("fingerprint", "vocab_size", *tokenizer.SPECIAL_TOKENS)


@dataclass(frozen=True)
class ShardEntry:
    """One shard: its file name, how much it holds, and the size and SHA-256 (hex) of its file."""

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

    `tokenizer` holds fingerprint, vocab_size, pad, unk, cls, sep and mask; `source` is free-form: what was
    read, with which options, and how much was dropped; `sha256` is the hash of manifest.json itself.
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
        """The sum over all shards of `documents`, `segments`, `tokens`, `chunks` or `bytes`."""
        return sum(getattr(entry, field) for entry in self.shards)

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Reads and checks DIRECTORY/manifest.json and the tokenizer.json beside it; opens no shard.

        Raises:
            InputError: missing, damaged, of another format version, with no documents though no part of a data set, or
                beside another tokenizer.json than the shards were written with.
        """
        path = Path(directory) / NAME
        content = _read(path)
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not JSON ({error}); {REBUILD}") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            found = record.get("format") if isinstance(record, dict) else None
            raise InputError(f"{path}: format version {reprlib.repr(found)}, this code reads {FORMAT}; {REBUILD}")
        description, source, shards = (record.get(key) for key in ("tokenizer", "source", "shards"))
        if not isinstance(description, dict) or not isinstance(source, dict) or not isinstance(shards, list):
            raise InputError(f"{path}: lacks tokenizer, source or shards; {REBUILD}")
        beside = tokenizer.load(path.with_name("tokenizer.json"))
        if description != describe(beside):
            raise InputError(
                f"{beside.path}: not the tokenizer the shards were written with (fingerprint "
                f"{beside.fingerprint[:12]}, the manifest says {reprlib.repr(description.get('fingerprint'))})"
            )
        entries = tuple(_entry(path, shard, beside.dtype.itemsize) for shard in shards)
        if len({entry.name for entry in entries}) != len(entries):
            raise InputError(f"{path}: lists a shard twice; {REBUILD}")
        if not sum(entry.documents for entry in entries) and not is_part(source):
            raise InputError(f"{path}: holds no documents; {REBUILD}")
        if sum(entry.chunks for entry in entries) > MOST_CHUNKS:
            raise InputError(f"{path}: lists more than {MOST_CHUNKS:,} chunks; build the shards of larger ones")
        return cls(path.parent, FORMAT, description, source, entries, hashlib.sha256(content).hexdigest())


def is_part(source: Mapping[str, Any]) -> bool:
    """Whether shards are one machine's part of a data set, which may well have no documents at all."""
    part = source.get("part")
    return isinstance(part, dict) and part.get("of") != 1


def shard_name(number: int) -> str:
    """The file name of a shard."""
    return f"shard-{number:06d}.tar"


def shards_folder(directory: Path) -> Path:
    """The folder of shards that is meant: `directory`, or `directory`/shards where only that has a manifest.json."""
    above, below = Path(directory), Path(directory) / "shards"
    return below if (below / NAME).exists() and not (above / NAME).exists() else above


def describe(tok: tokenizer.Tokenizer) -> dict[str, Any]:
    """What a manifest records of its tokenizer."""
    return {name: getattr(tok, name) for name in TOKENIZER_FIELDS}


def write(directory: Path, tok: tokenizer.Tokenizer, source: Mapping[str, Any], shards: list[ShardEntry]) -> None:
    """Writes DIRECTORY/manifest.json; InputError where that is refused."""
    record = {
        "format": FORMAT,
        "tokenizer": describe(tok),
        "source": dict(source),
        "shards": [asdict(entry) for entry in shards],
    }
    with whole_file(directory / NAME) as file:
        file.write((json.dumps(record, indent=1) + "\n").encode())


def _read(path: Path) -> bytes:
    if not path.exists():
        below = path.parent / "shards" / NAME
        hint = f"; point at {below.parent}" if below.exists() else "; is this a finished folder of shards?"
        raise InputError(f"{path}: no such file{hint}")
    return read_bytes(path, LARGEST_JSON)


def _entry(path: Path, record: Any, id_bytes: int) -> ShardEntry:
    """Checks one shard's record: complete, a plain file name, and no more inside than its bytes can hold."""
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
        raise InputError(f"{path}: {entry.name} has a sha256 that is none; {REBUILD}")
    if entry.bytes < id_bytes * entry.tokens + 4 * (entry.segments + entry.documents) + 1024 * entry.chunks:
        raise InputError(f"{path}: {entry.name} claims more than its {entry.bytes} bytes can hold; {REBUILD}")
    return entry
