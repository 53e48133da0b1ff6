"""Stop requests that reach a run from outside.

A signal or a file sets the request; the loop sends it with the next step's message, saves, and leaves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from deepsiam.trainer.training.run import parents

RESUME = 75  # exit code: stopped on request, saved, ready for --resume (EX_TEMPFAIL of sysexits.h)
HUNG = 76  # exit code: the watchdog saw no progress
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
STOP_FILE = "stop"  # in a run's folder: asks the run to save and exit, from any host that sees the folder
SAME_REQUEST = 5.0  # seconds within which signals count as one: the launcher may repeat a signal that the rank received


def exit_with_workers(code: int) -> NoReturn:
    """End this process at once, and its loader workers, which ignore SIGTERM and may be stopped."""
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(code)


class Stop:
    """A request to stop: SIGTERM, SIGUSR1 or Ctrl-C, the stop file, or the death of the launcher.

    Without a launcher, nothing would end the ranks that remain after another rank dies. A second signal ends the
    process at once. The file is removed when the block ends without an error; after an error the run may not have been
    saved, so the file stays.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.signalled: float | None = None  # time by the monotonic clock
        self.launcher = os.getppid()

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        if self.signalled is not None or os.getppid() != self.launcher or parents.gone():
            return True
        return self.file is not None and self.file.exists()

    def __enter__(self) -> Stop:
        """Install the signal handlers; the launcher's end becomes a request. Say so where the file is there already."""
        parents.release()
        if self.file is not None and self.file.exists():
            print(f"{self.file} asks for a stop: the run saves, removes the file and ends", flush=True)
        self.previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        """Restore the previous handlers."""
        if self.file is not None and exception[0] is None:
            self.file.unlink(missing_ok=True)
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        moment = time.monotonic()
        if self.signalled is not None and moment - self.signalled > SAME_REQUEST:
            exit_with_workers(128 + number)
        self.signalled = self.signalled or moment
