"""What comes from outside while a run is under way: being told to stop, a hang; and how the ranks say it."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from data_prep.errors import InputError

RESUME = 75  # exit code: told to stop, saved, ready to go on with --resume (EX_TEMPFAIL of sysexits.h)
HUNG = 76  # exit code: the watchdog saw no step
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
STOP_FILE = "stop"  # in a run's folder: asks it to save and end, from any host that sees the folder
SAME_REQUEST = 5.0  # seconds within which signals are one request: a launcher passes on what a rank may have got too


class SharedError(InputError):
    """An error that every rank raises at the same place: rank 0 says it for all."""


class Stop:
    """A request to stop: SIGTERM, SIGUSR1 or Ctrl-C, the stop file, or the launcher's death, after which nobody ends
    the ranks that others have lost.

    A second signal ends the process at once. The file is removed once its request is met: when the block ends, and
    not by an error, before which nothing may have been saved.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.signalled: float | None = None  # when, by the monotonic clock
        self.launcher = os.getppid()

    @property
    def asked(self) -> bool:
        """Whether to save and end."""
        told = self.signalled is not None or (self.file is not None and self.file.exists())
        return told or os.getppid() != self.launcher

    def __enter__(self) -> Stop:
        """Listen."""
        self.before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        """Listen no more."""
        if self.file is not None and exception[0] is None:
            self.file.unlink(missing_ok=True)
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.signalled is not None and now - self.signalled > SAME_REQUEST:
            os._exit(128 + number)
        self.signalled = self.signalled or now


class Watchdog:
    """Ends the process with every thread's stack on stderr when `beat` has not been called for so many seconds.

    A thread of its own: the main thread of a hung rank waits inside a collective.
    """

    def __init__(
        self,
        seconds: float,
        rank: int,
        end: Callable[[int], object] = os._exit,
        last_words: float = 5.0,
    ):
        """`last_words` are the seconds that the other ranks get for their stacks before this one ends."""
        self.seconds, self.rank, self.end, self.last_words = seconds, rank, end, last_words
        self.last = time.monotonic()
        self.over = threading.Event()

    def beat(self) -> None:
        """Something has been done."""
        self.last = time.monotonic()

    def __enter__(self) -> Watchdog:
        """Begin to watch."""
        self.beat()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Watch no more."""
        self.over.set()

    def _watch(self) -> None:
        while not self.over.wait(max(0.05, self.last + self.seconds - time.monotonic())):
            if time.monotonic() - self.last >= self.seconds:
                print(
                    f"rank {self.rank}: no step for {self.seconds:g} s (faults.hang_seconds); its stacks:",
                    file=sys.stderr,
                    flush=True,
                )
                faulthandler.dump_traceback(all_threads=True)
                self.over.wait(self.last_words)  # the launcher ends every rank as soon as one has ended
                self.end(HUNG)
