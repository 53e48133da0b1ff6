"""The reduce pass: turn each range of the spool's keys into a shard, which depends only on the documents of its range.

Documents are in the order of the hash of their text. So a shard is a fair sample of the input, exact duplicates are
neighbours, and the number of workers, the order of the input and its division into parts do not change the output.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.files import make_directory, write_bytes
from deepsiam.data_prep.prepare import spool
from deepsiam.data_prep.prepare.reading import document_of
from deepsiam.data_prep.prepare.rejected import NOT_WANTED, Rejected
from deepsiam.data_prep.shards import manifest, packing
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

SHARD_BYTES = 1 << 26  # of text in a shard, unless --shards is given: about 30 MB of ids
FEW_SHARDS = 256  # enough for 64 lanes
FEW_DOCUMENTS = 16  # in a shard of a small data set
_MIXED = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: makes the split independent of other uses of the hash


@dataclass(frozen=True)
class Selection:
    """Which of the spooled documents become shards, and which of those are held out."""

    files: tuple[Path, ...]  # of the spool
    keep_duplicates: bool
    held_out: float  # the share of the groups
    near_file: str = ""  # the file with the sorted keys of near-duplicates
    elsewhere: str = ""  # the file with the sorted keys of other data sets
    rejected: bool = False  # write what is left out next to the result


@dataclass(frozen=True)
class ShardPlan:
    """A shard to write: number `number` of `of` in a split."""

    split: str
    number: int
    of: int

    @property
    def range(self) -> tuple[int, int]:
        """The range of its documents' keys: low <= key < high."""
        ends = spool.edges(self.of)
        return ends[self.number], ends[self.number + 1]


def shards_of(documents: int, size: int, shards_wanted: int | None) -> int:
    """Return the number of shards for a number of documents and their bytes of text."""
    if shards_wanted:
        return shards_wanted
    return max(1, -(-size // SHARD_BYTES), min(FEW_SHARDS, documents // FEW_DOCUMENTS))


def is_held_out(group: str, share: float) -> bool:
    """Return whether a group, and so each of its documents, is held out, by the hash of its id."""
    return (spool.key_of(group) * _MIXED & (spool.KEYS - 1)) < share * spool.KEYS


def shard_writer(
    selection: Selection, tokenizer_file: Path, chunk_tokens: int, folder: Path, sentences: bool
) -> Callable[[ShardPlan], ShardPlan]:
    """Return a worker's task: write FOLDER/SPLIT/shard-NNNNNN.tar and then its entry in FOLDER/done.

    `sentences`: the segments of a document are sentences of one text, and no utterances.
    """
    tok = tokenizer.load(tokenizer_file)

    def write(shard: ShardPlan) -> ShardPlan:
        dropped: Counter[str] = Counter()
        rejected = Rejected(selection.rejected)

        def selected() -> Iterator[tuple[int, Document]]:
            yield from kept(selection, *shard.range, shard.split == "held_out", dropped, rejected)
            rejected.write(finished(folder, shard))

        write_documents(folder, shard, tokenized(selected(), tok, sentences), tok, chunk_tokens, dropped)
        return shard

    return write


def kept(
    selection: Selection, low: int, high: int, held_out: bool, dropped: Counter[str], rejected: Rejected = NOT_WANTED
) -> Iterator[tuple[int, Document]]:
    """Yield the documents of one split with low <= key < high and their keys, in order; count the rest in `dropped`.

    Documents of other data sets, copies included, are dropped first, so that parts can count them independently. Among
    documents with the same text, held-out ones are dropped if any is training text; of the rest, the one with the
    smallest record stays (almost always the smallest id). Both rules give the same result part by part.
    """
    near_keys, elsewhere = (
        np.load(file, mmap_mode="r") if file else np.empty(0, spool.KEY)
        for file in (selection.near_file, selection.elsewhere)
    )

    def drop(reason: str, *records: bytes) -> None:
        dropped[reason] += len(records)
        for record in records if rejected.enabled else ():
            rejected.add("write", reason, document=document_of(record))

    records_by_key: dict[int, list[bytes]] = {}
    for key, record in spool.gather(selection.files, low, high):
        if _is_held_out(record, selection.held_out) != held_out:
            continue
        if contains(elsewhere, key):
            drop("elsewhere", record)
            continue
        records = records_by_key.setdefault(key, [])
        if records and not selection.keep_duplicates:
            drop("same_text", max(records[0], record))
            records[0] = min(records[0], record)
        else:
            records.append(record)
    if held_out:  # a second pass, as the keys of all training text may not fit in memory
        for key, record in spool.gather(selection.files, low, high):
            if key in records_by_key and not _is_held_out(record, selection.held_out):
                drop("same_text", *records_by_key.pop(key))
    for key in sorted(records_by_key):
        is_near_duplicate = contains(near_keys, key)
        for record in sorted(records_by_key.pop(key)):
            if is_near_duplicate:
                drop("near_duplicate", record)
            else:
                yield key, document_of(record)


def _is_held_out(record: bytes, share: float) -> bool:
    if not share:
        return False  # without parsing the record
    document = document_of(record)
    return is_held_out(document.group or document.id, share)


def write_documents(
    folder: Path,
    shard: ShardPlan,
    documents: Iterable[TokenDocument],
    tok: Tokenizer,
    chunk_tokens: int,
    dropped: Counter[str],
) -> None:
    """Write a shard, unless it has no documents, and then its entry of the manifest and the counts of `dropped`."""
    path = folder / shard.split / manifest.shard_name(shard.number)
    make_directory(path.parent)  # not earlier: resuming a run that had already moved the split would create it again
    chunks = list(packing.chunks(documents, tok.dtype, chunk_tokens, folder))
    entry = asdict(packing.write_shard(path, shard.number, chunks)) if chunks else None
    write_bytes(finished(folder, shard), json.dumps({"entry": entry, "dropped": dropped}).encode())


def contains(keys: np.ndarray, key: int) -> bool:
    """Return whether a sorted array of uint64 has a key."""
    index = int(np.searchsorted(keys, np.uint64(key)))
    return index < len(keys) and int(keys[index]) == key


def tokenized(documents: Iterable[tuple[int, Document]], tok: Tokenizer, sentences: bool) -> Iterator[TokenDocument]:
    """Tokenise documents, which come with their keys; `sentences` as in `shard_writer`.

    A special token that a document spells out is text.
    """
    pairs = (((key, document), document.segments) for key, document in documents)
    for (key, document), ids in tok.splitting(True).encode_batches(pairs, sentences=sentences):
        yield TokenDocument(ids, document.id, document.group, document.headings, document.context, key)


def entries(folder: Path, shards: Sequence[ShardPlan]) -> tuple[list[manifest.ShardEntry], Counter[str]]:
    """Return the manifest entries of finished shards, and what was dropped from all of them."""
    shard_entries: list[manifest.ShardEntry] = []
    dropped: Counter[str] = Counter()
    for shard in shards:
        record: dict[str, Any] = json.loads(finished(folder, shard).read_bytes())
        dropped.update(record["dropped"])
        if record["entry"]:
            shard_entries.append(manifest.ShardEntry(**record["entry"]))
    return shard_entries, dropped


def finished(folder: Path, shard: ShardPlan) -> Path:
    """Return the file that exists once a shard is finished."""
    return folder / "done" / f"{shard.split}-{shard.number:06d}.json"
