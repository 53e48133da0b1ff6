"""Progress with rate and time left: a bar on a terminal, a plain line every few seconds elsewhere."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
Report = Callable[[int, str], None]  # takes the amount done so far and a note
PERIOD = 5.0  # seconds between plain lines


def track(items: Iterable[Item], what: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items and report on stderr how many are done, the rate and the time left."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with meter(what, unit, total) as report:
        for done, item in enumerate(items, 1):
            yield item
            report(done, "")


@contextmanager
def meter(what: str, unit: str, total: int | None) -> Iterator[Report]:
    """Yield a function to call with the amount done, which reports it on stderr with the rate and the time left.

    Of the ranks of a launcher only the first one reports.
    """
    if os.environ.get("RANK", "0") != "0":
        yield lambda done, note: None
        return
    if not sys.stderr.isatty():
        yield _lines(what, unit, total)
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    start = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total, rate="", note="")
        yield lambda done, note: progress.update(
            task, completed=done, rate=f"{done / (time.monotonic() - start):,.0f}/s", note=note
        )


def _lines(what: str, unit: str, total: int | None) -> Report:
    start = last = time.monotonic()

    def report(done: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PERIOD:
            last = now
            rate = done / (now - start)
            left = f", {(total - done) / rate:,.0f} s left" if total and rate else ""
            of = f"/{total:,}" if total else ""
            ending = f"; {note}" if note else ""
            print(f"{what}: {done:,}{of} {unit}, {rate:,.0f}/s{left}{ending}", file=sys.stderr, flush=True)

    return report
