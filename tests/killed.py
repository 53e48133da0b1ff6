"""Watch what a training prints, and kill it in the middle of a step."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import toy
from tests.warm import PATIENCE, Started


def read_to(process: Started | subprocess.Popen[bytes], printed: Path, beginning: str, times: int = 1) -> None:
    """Wait until a line that begins so has been printed, so many times."""
    while sum(line.startswith(beginning) for line in printed.read_text().splitlines()) < times:
        if process.poll() is not None:
            pytest.fail(f"it ended before {beginning!r}:\n{printed.read_text()}")
        time.sleep(0.005)


def kill_at(step: int, ranks: int, module: str, recipe: Path, *arguments: object) -> None:
    """Start a training that logs every step; send SIGKILL to all its processes when it prints a step."""
    printed = recipe.parent / f"printed until {step}"
    printed.touch()
    process = toy.start(ranks, module, recipe, *arguments, printed=printed)
    read_to(process, printed, f"step {step}/")
    kill(process)


def kill(process: Started | subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to all processes of a run; return when all have ended, for each of them may hold the run's lock."""
    others = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    wait_until_ended(others)


def wait_until_ended(processes: Iterable[psutil.Process]) -> None:
    """Wait for processes that are not this one's children; a zombie has ended, whether or not anyone waits for it.

    Its main thread may be one before the others have ended: until then they hold its files, and their locks.
    """
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            while process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1):
                time.sleep(0.01)
