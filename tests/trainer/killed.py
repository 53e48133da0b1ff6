"""Watch what a training prints, and kill it in the middle of a step."""

import os
import signal
import subprocess
import time
from pathlib import Path

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
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
