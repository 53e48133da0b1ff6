"""How long `data_prep` takes for all of Wikipedia or Reddit on many machines.

On every machine one process reads the whole input and splits it for the machine's workers, which process the machine's
share (docs/many_machines.md). Then the workers write the share as shards, and one machine merges the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deepsiam.data_prep.common.errors import InputError

HOUR = 3600.0
MONTH = 140e6  # lines of Reddit's RC_2019-12, for which docs/many_machines.md gives the sizes
REDDIT = 1.7e9 / MONTH  # how many such months make 1.7 billion comments
# 2 GB of XML, about 0.42 GB of text, merged in 8 s by two workers (docs/many_machines.md)
MERGING = 26e6


@dataclass(frozen=True)
class Work:
    """A part of the preparation: its amount, in which unit, and how fast one core does it."""

    amount: float
    unit: str
    rate: float  # units a second of one core

    @property
    def seconds(self) -> float:
        """The seconds that one core takes."""
        return self.amount / self.rate


@dataclass(frozen=True)
class PlannedSource:
    """An input and its work by name; the command takes rates by these names."""

    what: str
    bytes: float  # as stored on the disk, read by every machine
    reader: Mapping[str, Work]  # in the one process that reads
    workers: Mapping[str, Work]  # in a machine's workers, while that process reads
    writers: Mapping[str, Work]  # in the workers afterwards
    merge: Work
    text: float  # bytes of clean text
    shards: float  # bytes

    @property
    def works(self) -> dict[str, Work]:
        """All work by name."""
        return {**self.reader, **self.workers, **self.writers, "merging": self.merge}


# amounts and rates of one core: docs/many_machines.md, "How long, and how much disk"
SOURCES = {
    "wikipedia": PlannedSource(
        "English Wikipedia: 24 GB .bz2, 95 GB of XML",
        24e9,
        {"finding": Work(95e9, "bytes", 120e6), "cutting": Work(95e9, "bytes", 160e6)},
        {"decompressing": Work(95e9, "bytes", 25e6), "reading": Work(95e9, "bytes", 4.9e6)},
        {"writing": Work(20e9, "bytes", 3.1e6)},
        Work(20e9, "bytes", MERGING),
        20e9,
        9e9,
    ),
    "reddit": PlannedSource(
        f"Reddit: 1.7 billion comments, {14 * REDDIT:.0f} GB .zst, {170 * REDDIT:,.0f} GB of JSON",
        14e9 * REDDIT,
        {"cutting": Work(170e9 * REDDIT, "bytes", 77e6)},
        {"reading": Work(1.7e9, "lines", 16_000)},
        {"writing": Work(1.7e9, "lines", 23_000)},
        Work(17e9 * REDDIT, "bytes", MERGING),
        17e9 * REDDIT,
        11e9 * REDDIT,
    ),
}


@dataclass(frozen=True)
class Preparation:
    """The hours on a number of machines."""

    machines: int
    reading: float
    writing: float
    merging: float
    bottleneck: str  # of the longest pass

    @property
    def hours(self) -> float:
        """The hours of all passes, one after another."""
        return self.reading + self.writing + self.merging


def prepare(source: PlannedSource, machines: int, cores: int, disk: float, storage: float) -> Preparation:
    """Plan a preparation.

    Args:
        source: the input.
        machines: the number of machines, each of which prepares a part.
        cores: the cores of a machine.
        disk: bytes a second at which a machine reads the input.
        storage: bytes a second at which all machines together read it.
    """
    reader, workers, writers = (
        sum(work.seconds for work in works.values()) for works in (source.reader, source.workers, source.writers)
    )
    reading = {
        "the process that reads": reader,
        "the cores that read": (reader + workers / machines) / cores,
        "a machine's disk or network": source.bytes / disk,
        "the shared storage": machines * source.bytes / storage,
    }
    slowest = max(reading, key=lambda name: reading[name])
    writing = writers / machines / cores
    merging = source.merge.seconds / cores if machines > 1 else 0.0
    passes = {slowest: reading[slowest], "the cores that write": writing, "the merge": merging}
    return Preparation(
        machines, reading[slowest] / HOUR, writing / HOUR, merging / HOUR, max(passes, key=lambda name: passes[name])
    )


def with_rates(name: str, rates: Mapping[str, float]) -> PlannedSource:
    """Return a source with the given rates of one core by name, in the source's own units a second."""
    source = SOURCES[name]
    if unknown := [rate for rate in rates if rate not in source.works]:
        raise InputError(f"--rate {unknown[0]}: {name} has no such rate; it has {', '.join(source.works)}")

    def replaced(works: Mapping[str, Work]) -> dict[str, Work]:
        return {key: replace(work, rate=rates.get(key, work.rate)) for key, work in works.items()}

    return replace(
        source,
        reader=replaced(source.reader),
        workers=replaced(source.workers),
        writers=replaced(source.writers),
        merge=replaced({"merging": source.merge})["merging"],
    )
