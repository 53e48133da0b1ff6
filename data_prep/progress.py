"""Progress with rate and time left: a bar on a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
PERIOD = 5.0  # seconds between plain lines


def track(items: Iterable[Item], what: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yields the items and reports on stderr how many are done, how fast, and how long the rest will take."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    return _bar(items, what, unit, total) if sys.stderr.isatty() else _lines(items, what, unit, total)


def _bar(items: Iterable[Item], what: str, unit: str, total: int | None) -> Iterator[Item]:
    rate = TextColumn("{task.fields[rate]}")
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        rate,
        TimeRemainingColumn(),
    )
    start = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total, rate="")
        for done, item in enumerate(items, 1):
            yield item
            progress.update(task, completed=done, rate=f"{done / (time.monotonic() - start):,.0f}/s")


def _lines(items: Iterable[Item], what: str, unit: str, total: int | None) -> Iterator[Item]:
    start = spoken = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - spoken >= PERIOD:
            spoken = now
            rate = done / (now - start)
            left = f", {(total - done) / rate:,.0f} s left" if total else ""
            of = f"/{total:,}" if total else ""
            print(f"{what}: {done:,}{of} {unit}, {rate:,.0f}/s{left}", file=sys.stderr, flush=True)
