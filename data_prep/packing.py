"""Documents of token ids packed into the chunks of a shard, and the chunks into its tar."""

import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep import chunk
from data_prep.chunk import TokenDocument
from data_prep.errors import InputError
from data_prep.files import sha256_of, whole_file
from data_prep.manifest import ShardEntry

NO_KEY = -1


@dataclass(frozen=True)
class TokenizedDocument:
    """A document as ids, a row for each segment; `key` is the hash of its text, `headings` and `context` as they were.

    `key` is NO_KEY where a shard is not to be merged with others.
    """

    id: str
    segments: Sequence[np.ndarray]
    key: int = NO_KEY
    headings: tuple[int, ...] = ()
    context: int = 0


class Marks(NamedTuple):
    """Which of a document's segments are headings, how many leading ones are only context, what it is a part of."""

    headings: tuple[int, ...]
    context: int
    whole: str


@dataclass(frozen=True)
class Chunk:
    """Some documents as the two members of a tar: the .npz of chunk.py, and a .json of what else is known of them."""

    npz: bytes
    json: bytes
    documents: int
    segments: int
    tokens: int


def chunks(
    documents: Iterable[TokenizedDocument], id_type: np.dtype, chunk_tokens: int, where: Path
) -> Iterator[Chunk]:
    """Yields chunks, each closed by the document that brings it to `chunk_tokens`; documents are never cut.

    Raises:
        InputError: a chunk is larger than a reader takes; it names `where` the shards are.
    """
    fill: list[TokenizedDocument] = []
    tokens = 0
    for document in documents:
        fill.append(document)
        tokens += sum(map(len, document.segments))
        if tokens >= chunk_tokens:
            yield encode_chunk(fill, id_type, where)
            fill, tokens = [], 0
    if fill:
        yield encode_chunk(fill, id_type, where)


def write_shard(path: Path, number: int, contents: Sequence[Chunk]) -> ShardEntry:
    """Writes one shard, the sample of chunk c named `sssssscccccc`, and returns its line of a manifest."""
    with (
        whole_file(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for index, packed in enumerate(contents):
            for extension, content in (("npz", packed.npz), ("json", packed.json)):
                member = tarfile.TarInfo(f"{number:06d}{index:06d}.{extension}")  # mtime 0, no owner
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return ShardEntry(
        path.name,
        len(contents),
        documents=sum(packed.documents for packed in contents),
        segments=sum(packed.segments for packed in contents),
        tokens=sum(packed.tokens for packed in contents),
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
    )


def encode_chunk(documents: Sequence[TokenizedDocument], id_type: np.dtype, where: Path) -> Chunk:
    """One chunk of some documents; InputError as `chunks` raises it."""
    content = chunk.encode([list(document.segments) for document in documents], id_type)
    names = json.dumps(_provenance(documents)).encode()
    if max(len(content), len(names)) > chunk.LARGEST:
        raise InputError(
            f"{where}: the chunk with document {documents[0].id:.80} has over {chunk.LARGEST:,} bytes: "
            "make chunks of fewer tokens, or split its longest document"
        )
    lengths = [len(segment) for document in documents for segment in document.segments]
    return Chunk(content, names, len(documents), len(lengths), sum(lengths))


def _provenance(documents: Sequence[TokenizedDocument]) -> dict[str, Any]:
    """A list for each thing that is known of some document, with an item for every document."""
    known: dict[str, Any] = {"documents": [document.id for document in documents]}
    if all(document.key != NO_KEY for document in documents):
        known["keys"] = [f"{document.key:016x}" for document in documents]
    if any(document.headings for document in documents):
        known["headings"] = [list(document.headings) for document in documents]
    if any(document.context for document in documents):
        known["context"] = [document.context for document in documents]
    return known


def documents(contents: Sequence[TokenDocument], known: Mapping[str, Any]) -> Iterator[TokenizedDocument]:
    """The documents of a chunk, of its two members; ValueError where it has no keys, or lists of another length."""
    columns = [known["documents"], known.get("keys")]
    if not all(isinstance(column, list) and len(column) == len(contents) for column in columns):
        raise ValueError("its documents have no keys, or the provenance is of another length")
    for segments, name, key, marked in zip(contents, *columns, marks(contents, known), strict=True):
        if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{16}", key):
            raise ValueError(f"{key!r:.40} is no key")
        yield TokenizedDocument(name, segments, int(key, 16), marked.headings, marked.context)


def whole(document_id: str) -> str:
    """What a document is a part of, by its id: of `ID#2` the long text `ID`, of `reddit/THREAD/REPLY` the thread."""
    name = re.sub("#[0-9]+$", "", document_id)
    return "/".join(name.split("/")[:2]) if name.startswith("reddit/") else name


def marks(contents: Sequence[TokenDocument], known: Mapping[str, Any]) -> list[Marks]:
    """What the provenance of a chunk says of its documents' segments; ValueError where it cannot be of them."""
    number = len(contents)
    columns = [known["documents"], known.get("headings", [[]] * number), known.get("context", [0] * number)]
    if not all(isinstance(column, list) and len(column) == number for column in columns):
        raise ValueError("the provenance is of another length")
    found = []
    for segments, name, headings, context in zip(contents, *columns, strict=True):
        if type(context) is not int or not 0 <= context <= len(segments):
            raise ValueError(f"{context!r:.40} is no number of segments")
        if not isinstance(headings, list) or not all(type(h) is int and 0 <= h < len(segments) for h in headings):
            raise ValueError(f"{headings!r:.40} are no headings")
        found.append(Marks(tuple(headings), context, whole(name)))
    return found
