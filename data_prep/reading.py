"""What workers make of batches: documents that have gone through every stage, spooled by the hash of their text.

A source whose documents are records of one file is read in one pass. Where they are joined of fragments (Reddit's
threads), the first pass spools the fragments by what they share, and the second joins them, range of hashes by range,
so that memory does not depend on the size of the input.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import near_duplicates, sources, spool, stages
from data_prep.batches import Batch, Part
from data_prep.clean import fold
from data_prep.document import Document
from data_prep.record import Bad, Dropped
from data_prep.source import File, Piece, Source
from data_prep.stages import Stage
from data_prep.tally import Tally

NAMED = 5  # bad records that a batch names
FEWEST_WORDS = 20  # of a document that can be a near-duplicate
LONGEST = 1 << 20  # bytes of a document; a longer one is cut, or no chunk could hold it
LARGEST_JOIN = 1 << 26  # bytes of the fragments of one document that are held


@dataclass(frozen=True)
class Reading:
    """What is done with a source's text before it is tokenised; all that decides what a batch becomes."""

    source: str
    choices: Mapping[str, Any]
    part: Part
    stages: stages.Options
    near_duplicates: float | None = None  # the similarity from which documents count as near-duplicates
    evaluation: str = ""  # the file with the n-grams that no document may have
    evaluation_sha256: str = ""

    def identity(self) -> str:
        """What it does, as text; where the n-grams lie does not matter."""
        return json.dumps(asdict(replace(self, evaluation="")), sort_keys=True)


@dataclass(frozen=True)
class Range:
    """Fragments from all `files` with low <= key < high."""

    files: tuple[Path, ...]
    low: int
    high: int


def batch_reader(reading: Reading, folder: Path) -> Callable[[Batch], str]:
    """What a worker does with the batches of the first pass; a batch's file in `folder` has its name."""
    source = sources.SOURCES[reading.source]
    finish = None if source.join else _Finish(reading, source)

    def read(batch: Batch) -> str:
        pieces = Tally("read", reading.choices)
        bad: list[Bad] = []
        found = _found(source, reading, batch.pieces, pieces, bad)
        if finish:
            records, bands, tallies = finish(found)
        else:
            records = [(spool.key_of(item[0]), json.dumps(item, ensure_ascii=False).encode()) for item in found]
            bands, tallies = None, []
        said = [f"{item.file}: {item.where}: {item.reason}" for item in bad[:NAMED]]
        about = {"bad": len(bad), "named": said, "stages": [pieces.record(), *tallies]}
        spool.write(folder / batch.name, about, records, bands)
        return batch.name

    return read


def range_joiner(reading: Reading, folder: Path) -> Callable[[Range], str]:
    """What a worker does with the ranges of the second pass; a range's file in `folder` is named by its first key."""
    source = sources.SOURCES[reading.source]
    finish = _Finish(reading, source)

    def join(wanted: Range) -> str:
        joined = Tally("join", {})
        records, bands, tallies = finish(_joined(source, wanted, joined))
        about = {"bad": 0, "named": [], "stages": [joined.record(), *tallies]}
        spool.write(folder / name_of(wanted), about, records, bands)
        return name_of(wanted)

    return join


def name_of(wanted: Range) -> str:
    """The name of a range's file."""
    return f"{wanted.low:016x}"


def _found(
    source: Source, reading: Reading, pieces: Iterable[tuple[File, Piece]], tally: Tally, bad: list[Bad]
) -> Iterator[Any]:
    """The documents or fragments of some pieces."""
    for file, piece in pieces:
        belongs = source.join.belongs(piece) if source.join and reading.part.of > 1 else ""
        if belongs and not reading.part.has(spool.key_of(belongs)):
            continue
        for item in source.read(file, piece, reading.choices):
            tally.came += 1
            if isinstance(item, Bad):
                bad.append(item)
                tally.drop("bad")
            elif isinstance(item, Dropped):
                tally.drop(item.reason)
            else:
                tally.went += 1
                yield item


def _joined(source: Source, wanted: Range, tally: Tally) -> Iterator[Document]:
    assert source.join is not None
    sizes = spool.sizes(wanted.files, wanted.low, wanted.high)
    together: dict[str, list[Any]] = {}
    for key, record in spool.gather(wanted.files, wanted.low, wanted.high):
        tally.came += 1
        if sizes[key] > LARGEST_JOIN:
            tally.drop("too_large")
            continue
        fragment = json.loads(record)
        together.setdefault(fragment[0], []).append(fragment)
    for name in sorted(together):
        for item in source.join.documents(together.pop(name)):
            if isinstance(item, Dropped):
                tally.drop(item.reason)
            else:
                tally.went += 1
                yield item


class _Finish:
    """Takes documents through the stages and makes records of them."""

    def __init__(self, reading: Reading, source: Source) -> None:
        table = np.load(reading.evaluation, mmap_mode="r") if reading.evaluation else None
        self.stages = stages.build(reading.stages, source.paragraphs, table)
        self.threshold = reading.near_duplicates

    def __call__(
        self, documents: Iterable[Document]
    ) -> tuple[list[tuple[int, bytes]], np.ndarray | None, list[dict[str, Any]]]:
        """The records with their keys, a row of bands for each, and what the stages did."""
        tallies = [Tally(stage.name, stage.parameters) for stage in self.stages]
        cuts = Tally("cut", {"bytes": LONGEST})
        records: list[tuple[int, bytes]] = []
        rows: list[np.ndarray] = []
        for document in documents:
            done = _through(self.stages, tallies, document)
            if isinstance(done, Dropped):
                continue
            cuts.came += 1
            for piece in cut(done):
                cuts.went += 1
                text = "\n".join(piece.segments)
                content = [piece.id, piece.segments, piece.headings, piece.context]
                records.append((spool.key_of(fold(text)), json.dumps(content, ensure_ascii=False).encode()))
                if self.threshold is not None:
                    rows.append(_bands(piece, self.threshold))
        return records, np.array(rows) if rows else None, [tally.record() for tally in (*tallies, cuts)]


def _bands(document: Document, threshold: float) -> np.ndarray:
    """The bands of what is new in a document, or none: of a few words too many documents consist by chance."""
    new = "\n".join(document.segments[document.context :])
    if len(new.split()) < FEWEST_WORDS:
        return np.full(near_duplicates.layout(threshold)[0], spool.NO_BAND, np.uint64)  # int64 and uint64 make floats
    return near_duplicates.bands(new, threshold)


def _through(chain: list[Stage], tallies: list[Tally], document: Document) -> Document | Dropped:
    for stage, tally in zip(chain, tallies, strict=True):
        tally.came += 1
        done = stage.apply(document)
        if isinstance(done, Dropped):
            tally.drop(done.reason)
            return done
        tally.went += 1
        document = done
    return document


def document_of(record: bytes) -> Document:
    """The document that a record holds."""
    name, segments, headings, context = json.loads(record)
    return Document(name, tuple(segments), tuple(headings), context)


def cut(document: Document) -> Iterator[Document]:
    """A document of more than LONGEST bytes as several, `ID`, `ID#2`, ...: cut between segments where it can be."""
    if sum(map(len, document.segments)) * 4 <= LONGEST:  # no character has more bytes
        yield document
        return
    pieces: list[list[tuple[str, bool]]] = [[]]
    size = 0
    for index, segment in enumerate(document.segments):
        for part in _fitting(segment):
            length = len(part.encode())
            if size + length > LONGEST:
                pieces.append([])
                size = 0
            pieces[-1].append((part, index in document.headings))
            size += length
    for number, piece in enumerate(pieces, 1):
        name = document.id if number == 1 else f"{document.id}#{number}"
        headings = tuple(index for index, (_, heading) in enumerate(piece) if heading)
        yield Document(name, tuple(part for part, _ in piece), headings, document.context if number == 1 else 0)


def _fitting(segment: str) -> Iterator[str]:
    """A segment as runs of at most LONGEST bytes."""
    most = LONGEST // 4
    if len(segment) <= most:
        yield segment
        return
    for start in range(0, len(segment), most):
        yield segment[start : start + most]
