"""What workers make of ranges of the spool: shards, each a function of nothing but the documents of its range.

Documents come in the order of the hash of their text. So a shard holds a fair sample of the input, exact duplicates
meet, and neither the workers nor the order of the input, nor how it was divided, leave a trace.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import manifest, packing, spool, tokenizer
from data_prep.document import Document
from data_prep.files import make_directory, whole_file
from data_prep.packing import TokenizedDocument
from data_prep.reading import document_of
from data_prep.tokenizer import Tokenizer

BATCH = 512  # documents tokenised at once
SHARD_BYTES = 1 << 26  # of text in a shard, where nothing else is asked for: some 30 MB of ids
FEW_SHARDS = 256  # enough for 64 lanes
FEW_DOCUMENTS = 16  # of a shard of a small data set
_MIXED = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: makes the split independent of the order


@dataclass(frozen=True)
class Selection:
    """Which of the spooled documents become shards, and which of those are held out."""

    files: tuple[Path, ...]  # of the spool
    keep_duplicates: bool
    held_out: float  # the share of the documents
    near: str = ""  # the file with the sorted keys of near-duplicates
    elsewhere: str = ""  # the file with the sorted keys of other data sets


@dataclass(frozen=True)
class Shard:
    """A shard to be written: number `number` of `of` in a split."""

    split: str
    number: int
    of: int

    @property
    def range(self) -> tuple[int, int]:
        """The keys of its documents: from the first, up to but without the second."""
        ends = spool.edges(self.of)
        return ends[self.number], ends[self.number + 1]


def shards_of(documents: int, size: int, wanted: int | None) -> int:
    """How many shards a data set of so many documents and bytes of text is divided into."""
    if wanted:
        return wanted
    return max(1, -(-size // SHARD_BYTES), min(FEW_SHARDS, documents // FEW_DOCUMENTS))


def is_held_out(key: int, share: float) -> bool:
    """Whether a document is in the held-out split, by the hash of its text."""
    return (key * _MIXED & (spool.KEYS - 1)) < share * spool.KEYS


def shard_writer(
    selection: Selection, tokenizer_file: Path, chunk_tokens: int, folder: Path
) -> Callable[[Shard], Shard]:
    """What a worker does with each shard: FOLDER/SPLIT/shard-NNNNNN.tar and then its entry, in FOLDER/done."""
    tok = tokenizer.load(tokenizer_file)

    def write(shard: Shard) -> Shard:
        dropped: Counter[str] = Counter()
        documents = kept(selection, *shard.range, shard.split == "held_out", dropped)
        write_documents(folder, shard, tokenized(documents, tok), tok, chunk_tokens, dropped)
        return shard

    return write


def kept(
    selection: Selection, low: int, high: int, held_out: bool, dropped: Counter[str]
) -> Iterator[tuple[int, Document]]:
    """The documents of one split with low <= key < high and their keys, in order; counts the others in `dropped`.

    Of documents with the same text the one stays whose record is the smallest, that is, mostly, whose id is. Those that
    other data sets have are left out first, copies with them, so that parts can tell how many without one another.
    """
    near, elsewhere = (
        np.load(file, mmap_mode="r") if file else np.empty(0, spool.KEY)
        for file in (selection.near, selection.elsewhere)
    )
    same: dict[int, list[bytes]] = {}
    for key, record in spool.gather(selection.files, low, high):
        if is_held_out(key, selection.held_out) != held_out:
            continue
        if contains(elsewhere, key):
            dropped["elsewhere"] += 1
            continue
        records = same.setdefault(key, [])
        if records and not selection.keep_duplicates:
            dropped["same_text"] += 1
            records[0] = min(records[0], record)
        else:
            records.append(record)
    for key in sorted(same):
        surpassed = contains(near, key)
        for record in sorted(same.pop(key)):
            if surpassed:
                dropped["near_duplicate"] += 1
            else:
                yield key, document_of(record)


def write_documents(
    folder: Path,
    shard: Shard,
    documents: Iterable[TokenizedDocument],
    tok: Tokenizer,
    chunk_tokens: int,
    dropped: Counter[str],
) -> None:
    """Writes a shard, unless it has no documents, and what is to be known of it: its entry and what was dropped."""
    path = folder / shard.split / manifest.shard_name(shard.number)
    make_directory(path.parent)  # here, or a run that was killed after it had moved the split would make it anew
    chunks = list(packing.chunks(documents, tok.dtype, chunk_tokens, folder))
    entry = asdict(packing.write_shard(path, shard.number, chunks)) if chunks else None
    with whole_file(finished(folder, shard)) as file:
        file.write(json.dumps({"entry": entry, "dropped": dropped}).encode())


def contains(keys: np.ndarray, key: int) -> bool:
    """Whether a sorted array of uint64 has a key."""
    index = int(np.searchsorted(keys, np.uint64(key)))
    return index < len(keys) and int(keys[index]) == key


def tokenized(documents: Iterable[tuple[int, Document]], tok: Tokenizer) -> Iterator[TokenizedDocument]:
    """Documents with their keys, as token ids."""
    documents = iter(documents)
    while batch := list(islice(documents, BATCH)):
        encoded = iter(tok.encode([segment for _, document in batch for segment in document.segments]))
        for key, document in batch:
            ids = list(islice(encoded, len(document.segments)))
            yield TokenizedDocument(document.id, ids, key, document.headings, document.context)


def entries(folder: Path, shards: Sequence[Shard]) -> tuple[list[manifest.ShardEntry], Counter[str]]:
    """The manifest's lines of finished shards, and what was dropped from all of them."""
    found: list[manifest.ShardEntry] = []
    dropped: Counter[str] = Counter()
    for shard in shards:
        record: dict[str, Any] = json.loads(finished(folder, shard).read_bytes())
        dropped.update(record["dropped"])
        if record["entry"]:
            found.append(manifest.ShardEntry(**record["entry"]))
    return found, dropped


def finished(folder: Path, shard: Shard) -> Path:
    """The file that is there once a shard is."""
    return folder / "done" / f"{shard.split}-{shard.number:06d}.json"
