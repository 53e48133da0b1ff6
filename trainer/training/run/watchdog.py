"""End a run that hangs, after printing every thread's stack.

A thread beside the loop. Every step beats it, and every batch of a validation, a probe or a refresh; silence ends the
process.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections.abc import Callable

from deepsiam.trainer.training.engine.world import wait_at_most
from deepsiam.trainer.training.run.stop import HUNG, exit_with_workers

MARGIN = 60.0  # seconds by which a collective waits longer


class Watchdog:
    """End the process, with every thread's stack on stderr, if `beat` was not called for `seconds`.

    It runs in its own thread, because the main thread of a hung rank waits inside a collective.
    """

    def __init__(self, seconds: float, rank: int, end: Callable[[int], object] = exit_with_workers, grace: float = 5.0):
        """`grace`: seconds that the other ranks get to print their stacks before this one ends."""
        self.seconds, self.rank, self.end, self.grace = seconds, rank, end, grace
        self.last = time.monotonic()
        self.finished = threading.Event()

    def beat(self) -> None:
        """Record progress."""
        self.last = time.monotonic()

    def __enter__(self) -> Watchdog:
        """Start watching, and let collectives wait longer: their errors would not say where the ranks are."""
        wait_at_most(self.seconds + self.grace + MARGIN)
        self.beat()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop watching."""
        self.finished.set()

    def _watch(self) -> None:
        while not self.finished.wait(max(0.05, self.last + self.seconds - time.monotonic())):
            if time.monotonic() - self.last >= self.seconds:
                print(
                    f"rank {self.rank}: no step for {self.seconds:g} s (faults.hang_seconds); its stacks:",
                    file=sys.stderr,
                    flush=True,
                )
                faulthandler.dump_traceback(all_threads=True)
                self.finished.wait(self.grace)  # the launcher ends every rank as soon as one ends
                self.end(HUNG)
