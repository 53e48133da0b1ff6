"""Progress with rate and time left: a bar on a terminal, a plain line every few seconds elsewhere."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Report = Callable[[int, str], None]  # takes the amount done so far and a note
PERIOD = 5.0  # seconds between plain lines
BYTES = "bytes"  # the unit that is shown as MB or GB
MEGABYTE, GIGABYTE = 1e6, 1e9


def track(items: Iterable[Item], title: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items and report on stderr how many are done, the rate and the time left."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with meter(title, unit, total) as report:
        for count, item in enumerate(items, 1):
            yield item
            report(count, "")


@contextmanager
def meter(title: str, unit: str, total: int | None, later: float = 0.0) -> Iterator[Report]:
    """Yield a function to call with the amount done, which reports it on stderr with the rate and the time left.

    Under a launcher, only rank 0 reports. `BYTES` are shown as MB or GB; a total of None is not known; `later` is about
    how long the passes after this one take, as a multiple of this pass's time.
    """
    start = time.monotonic()

    def state(count: int, note: str) -> str:
        return _state(count, total, unit, time.monotonic() - start, later) + (f"; {note}" if note else "")

    if os.environ.get("RANK", "0") != "0":
        yield lambda count, note: None
    elif not sys.stderr.isatty():
        yield _lines(title, state)
    else:
        from rich.console import Console  # here: it takes .1 s, and only a terminal shows bars
        from rich.progress import BarColumn, Progress, TextColumn

        columns = TextColumn(title), BarColumn(), TextColumn("{task.fields[state]}")
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task(title, total=total, state="")
            yield lambda count, note: progress.update(task, completed=count, state=state(count, note))


def _lines(title: str, state: Callable[[int, str], str]) -> Report:
    last_moment = time.monotonic()

    def report(count: int, note: str) -> None:
        nonlocal last_moment
        moment = time.monotonic()
        if moment - last_moment >= PERIOD:
            last_moment = moment
            print(f"{title}: {state(count, note)}", file=sys.stderr, flush=True)

    return report


def _state(count: int, total: int | None, unit: str, seconds: float, later: float) -> str:
    """Format as `4.2/11.7 MB, 1.3 MB/s, 6 s left, 14 s of all passes`."""
    rate = count / seconds if seconds else 0.0
    if unit == BYTES:
        size = GIGABYTE if max(count, total or 0) >= GIGABYTE else MEGABYTE
        of = f"{count / size:,.1f}/" if total else ""
        parts = [f"{of}{amount(total or count)}", f"{rate / MEGABYTE:,.1f} MB/s"]
    else:
        of = f"/{total:,}" if total else ""
        parts = [f"{count:,}{of} {unit}", f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"]
    if total and rate:
        seconds_left = max(total - count, 0) / rate
        parts.append(f"{duration(seconds_left)} left")
        if later:
            parts.append(f"about {duration(seconds_left + later * (seconds + seconds_left))} of all passes")
    return ", ".join(parts)


def amount(size: float) -> str:
    """Format bytes as `11.7 MB` or `95.0 GB`."""
    return f"{size / GIGABYTE:,.1f} GB" if size >= GIGABYTE else f"{size / MEGABYTE:,.1f} MB"


def duration(seconds: float) -> str:
    """Format seconds as `45 s`, `14 min` or `3:05 h`."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:,.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60:,}:{minutes % 60:02d} h"
