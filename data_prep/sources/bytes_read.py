"""Count the bytes that this process has read from its input files, and report the time left."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepsiam.data_prep.common.progress import BYTES, Item, meter


@dataclass
class ByteCounter:
    """A number of bytes, as they are in the files: compressed ones count before they are inflated."""

    bytes: int = 0


counter = ByteCounter()  # each reader of files adds to it


def track_files(items: Iterable[Item], title: str, unit: str, files: Sequence[Path]) -> Iterator[Item]:
    """Yield items that are read from these files; report on stderr how much of them was read, and the time left."""
    total = sum(file.stat().st_size for file in files)
    start = counter.bytes
    with meter(title, BYTES, total) as report:
        for number, item in enumerate(items, 1):
            yield item
            report(min(counter.bytes - start, total), f"{number:,} {unit}")
