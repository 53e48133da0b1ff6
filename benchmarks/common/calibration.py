"""Work that never changes, timed next to a piece, so that a piece's cost is given in calibrations, not in seconds.

A slower or busier machine slows both. CPU time is measured, which does not count waiting for a core. The effect of
other processes on caches and memory remains, but a calibration of the same kind suffers from it, too:

    arrays   a matrix product, and passes over more memory than a cache holds
    python   words counted and sorted by the interpreter

After a change of a calibration, all costs given in it must be measured again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import lru_cache
from io import StringIO

import torch
from torch import Tensor

SIDE, PRODUCTS = 1024, 3
LONG, PASSES = 1 << 24, 4  # fp32 numbers, 64 MiB
WORDS, DIFFERENT = 300_000, 20_011


def arrays() -> None:
    """Multiply matrices; add to a long vector in place."""
    square, vector = _operands()
    for _ in range(PRODUCTS):
        square @ square
    for _ in range(PASSES):
        vector.add_(1.0)


def python() -> None:
    """Generate, count and sort words."""
    counts = Counter(f"word {number * number % DIFFERENT}" for number in range(WORDS))
    sorted(counts, key=lambda word: (-counts[word], word))


CALIBRATIONS: dict[str, Callable[[], object]] = {"arrays": arrays, "python": python}


def cpu_seconds(work: Callable[[], object]) -> float:
    """Measure the CPU seconds of some work, over all threads of this process, in user and system mode.

    Its stderr is dropped: drawing a progress bar on a terminal takes a thread, whose time would count.
    """
    with redirect_stderr(StringIO()):
        start = time.process_time()
        work()
        return time.process_time() - start


def in_calibrations(work: Callable[[], object], calibration: Callable[[], object]) -> float:
    """Measure some work's CPU time in calibrations: the mean of one right before it and one right after it."""
    before, spent, after = map(cpu_seconds, (calibration, work, calibration))
    return 2 * spent / (before + after)


@lru_cache
def _operands() -> tuple[Tensor, Tensor]:
    return torch.full((SIDE, SIDE), 0.5), torch.zeros(LONG)
