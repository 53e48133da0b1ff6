"""The map pass: read a batch, apply the stages, spool the documents by the hash of their text.

A source whose documents are records of one file is read in one pass. For documents that are joined from fragments
(Reddit's threads), a first pass spools the fragments by the hash of the name that they share, and a second pass joins
them, one range of hashes at a time, so that memory does not depend on the size of the input.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.prepare import minhash, spool, stages
from deepsiam.data_prep.prepare.batches import Batch, Part
from deepsiam.data_prep.prepare.rejected import Rejected
from deepsiam.data_prep.prepare.stages import Stage
from deepsiam.data_prep.prepare.tally import Tally
from deepsiam.data_prep.sources import registry
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.source import EXPECTED_LANGUAGE, Choices, File, Piece, Source
from deepsiam.data_prep.text.normalize import fold

LISTED_RECORDS = 5  # bad records that are listed for each batch
RECORDS = 7  # the version of spool files: a resumed run uses none of another version
FEWEST_WORDS = 20  # a shorter document is never a near-duplicate
MAX_BYTES = 1 << 20  # bytes of a document; a longer one is split, since no chunk could hold it
LARGEST_JOIN = 1 << 26  # bytes of the fragments with one hash; more are dropped


@dataclass(frozen=True)
class Reading:
    """Everything, besides its input, that determines the result of a batch."""

    source: str
    choices: Mapping[str, Any]
    part: Part
    stages: stages.StageOptions
    pairs: bool = False  # whether each document is a pair
    near_duplicates: float | None = None  # the similarity from which documents count as near-duplicates
    evaluation: str = ""  # the file with the n-grams that no document may have
    evaluation_sha256: str = ""
    rejected: bool = False  # write what is left out next to the result

    def identity(self) -> str:
        """Return these settings as text, without the path of the n-grams, which does not matter."""
        return json.dumps({"records": RECORDS, **asdict(replace(self, evaluation=""))}, sort_keys=True)


def batch_reader(reading: Reading, folder: Path) -> Callable[[Batch], str]:
    """Return a worker's task of the first pass: write the file of a batch, which has its name, in `folder`."""
    source = registry.SOURCES[reading.source]
    finish = None if source.join else _Finish(reading, source)

    def read(batch: Batch) -> str:
        rejected = Rejected(reading.rejected)
        pieces = Tally("read", reading.choices, rejected)
        bad_records: list[Bad] = []
        items = _items(source, reading, batch.pieces, pieces, bad_records)
        if finish:
            records, bands, tallies = finish(items, rejected)
        else:
            records = [(spool.key_of(item[0]), json.dumps(item, ensure_ascii=False).encode()) for item in items]
            bands, tallies = None, []
        lines = [f"{item.file}: {item.where}: {item.reason}" for item in bad_records[:LISTED_RECORDS]]
        about = {"bad": len(bad_records), "named": lines, "stages": [pieces.record(), *tallies]}
        rejected.write(folder / batch.name)
        spool.write(folder / batch.name, about, records, bands)
        return batch.name

    return read


def range_joiner(reading: Reading, files: Sequence[Path], folder: Path) -> Callable[[tuple[int, int]], str]:
    """Return a worker's task of the second pass: join the fragments of `files` with low <= key < high.

    Their file is in `folder`, named by the first key.
    """
    source = registry.SOURCES[reading.source]
    finish = _Finish(reading, source)

    def join(bounds: tuple[int, int]) -> str:
        name = name_of(bounds)
        rejected = Rejected(reading.rejected)
        join_tally = Tally("join", {}, rejected)
        records, bands, tallies = finish(_joined(source, reading.choices, files, bounds, join_tally), rejected)
        about = {"bad": 0, "named": [], "stages": [join_tally.record(), *tallies]}
        rejected.write(folder / name)
        spool.write(folder / name, about, records, bands)
        return name

    return join


def name_of(bounds: tuple[int, int]) -> str:
    """Return the name of a range's file."""
    return f"{bounds[0]:016x}"


def _items(
    source: Source, reading: Reading, pieces: Iterable[tuple[File, Piece]], tally: Tally, bad_records: list[Bad]
) -> Iterator[Any]:
    """Yield the documents or fragments of pieces; append the bad ones to `bad_records`."""
    choices = {**reading.choices, EXPECTED_LANGUAGE: reading.stages.language}
    for file, piece in pieces:
        join = source.join if reading.part.of > 1 and not isinstance(piece.content, Dropped) else None
        belongs = join.belongs(piece) if join else ""
        if belongs and not reading.part.has(spool.key_of(belongs)):
            continue
        for item in source.items(file, piece, choices):
            if join and not belongs:  # the hash of a text decides to which part this belongs
                left_out = isinstance(item, Bad | Dropped)
                if not reading.part.has(spool.key_of(f"{file.name}: {piece.where}" if left_out else item[0])):
                    continue
            tally.came += 1
            if isinstance(item, Bad):
                bad_records.append(item)
                tally.drop("bad", f"{file.name}: {piece.where}: {item.reason}")
            elif isinstance(item, Dropped):
                tally.drop(item.reason, f"{file.name}: {piece.where}")
                tally.sentences.update(item.unknown)
            else:
                tally.went += 1
                if isinstance(item, Document):
                    tally.sentences.update(item.unknown)
                    if item.guessed:
                        tally.guess(item.guessed, item.id)
                yield item


def _joined(
    source: Source, choices: Choices, files: Sequence[Path], bounds: tuple[int, int], tally: Tally
) -> Iterator[Document]:
    assert source.join is not None
    sizes = spool.sizes(files, *bounds)
    together: dict[str, list[Any]] = {}
    for key, record in spool.gather(files, *bounds):
        tally.came += 1
        fragment = json.loads(record)
        if sizes[key] > LARGEST_JOIN:
            tally.drop("too_large", fragment[0])
            continue
        together.setdefault(fragment[0], []).append(fragment)
    for name in sorted(together):
        for item in source.join.documents(together.pop(name), choices):
            if isinstance(item, Dropped):
                tally.drop(item.reason, name)
            else:
                tally.went += 1
                yield item


class _Finish:
    """Apply the stages to documents and turn them into records."""

    def __init__(self, reading: Reading, source: Source) -> None:
        table = np.load(reading.evaluation, mmap_mode="r") if reading.evaluation else None
        paragraphs = source.are_paragraphs(reading.choices) and not reading.pairs
        self.stages = stages.build(reading.stages, paragraphs, table, pairs=reading.pairs)
        self.threshold = reading.near_duplicates

    def __call__(
        self, documents: Iterable[Document], rejected: Rejected
    ) -> tuple[list[tuple[int, bytes]], np.ndarray | None, list[dict[str, Any]]]:
        """Return the records with their keys, a row of bands for each, and the tallies of the stages."""
        tallies = [Tally(stage.name, stage.parameters, rejected) for stage in self.stages]
        cuts = Tally("cut", {"bytes": MAX_BYTES})
        records: list[tuple[int, bytes]] = []
        rows: list[np.ndarray] = []
        for document in documents:
            changed = _through(self.stages, tallies, document)
            if isinstance(changed, Dropped):
                continue
            cuts.came += 1
            for piece in cut(changed):
                cuts.went += 1
                text = "\n".join(piece.segments)
                content = [piece.id, piece.segments, piece.headings, piece.context, piece.group, piece.title]
                records.append((spool.key_of(fold(text)), json.dumps(content, ensure_ascii=False).encode()))
                if self.threshold is not None:
                    rows.append(_bands(piece, self.threshold))
        return records, np.array(rows) if rows else None, [tally.record() for tally in (*tallies, cuts)]


def _bands(document: Document, threshold: float) -> np.ndarray:
    """Return the bands of a document without its context; none if it has few words, which others share by chance."""
    text = "\n".join(document.segments[document.context :])
    if len(text.split()) < FEWEST_WORDS:
        return np.full(minhash.layout(threshold)[0], spool.NO_BAND, np.uint64)  # int64 and uint64 make floats
    return minhash.bands(text, threshold)


def _through(chain: list[Stage], tallies: list[Tally], document: Document) -> Document | Dropped:
    for stage, tally in zip(chain, tallies, strict=True):
        tally.came += 1
        changed = stage.apply(document)
        if isinstance(changed, Dropped):
            tally.drop(changed.reason, document=document)
            return changed
        tally.went += 1
        document = changed
    return document


def document_of(record: bytes) -> Document:
    """Return the document of a record."""
    name, segments, headings, context, group, title = json.loads(record)
    return Document(name, tuple(segments), tuple(headings), context, group, title)


def cut(document: Document) -> Iterator[Document]:
    """Cut a document of more than MAX_BYTES into parts `ID`, `ID#2`, ... of one group, mostly between segments."""
    if sum(map(len, document.segments)) * 4 <= MAX_BYTES:  # no character has more bytes
        yield document
        return
    pieces: list[list[tuple[str, bool]]] = [[]]
    size, width = 0, MAX_BYTES // 4  # the most characters of a part, which has at most MAX_BYTES bytes
    for index, segment in enumerate(document.segments):
        for part in [segment[start : start + width] for start in range(0, len(segment), width)] or [segment]:
            length = len(part.encode())
            if size + length > MAX_BYTES:
                pieces.append([])
                size = 0
            pieces[-1].append((part, index in document.headings))
            size += length
    for number, piece in enumerate(pieces, 1):
        name = document.id if number == 1 else f"{document.id}#{number}"
        headings = tuple(index for index, (_, heading) in enumerate(piece) if heading)
        context = document.context if number == 1 else 0
        text = tuple(part for part, _ in piece)
        yield Document(name, text, headings, context, document.group or document.id, document.title)
