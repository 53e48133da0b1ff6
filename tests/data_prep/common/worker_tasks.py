"""What the workers of a test do, without an import of torch: each worker imports this file anew."""

import os
import signal
from collections.abc import Callable

from deepsiam.data_prep.common.errors import InputError


def add(number: int) -> Callable[[int], tuple[int, int, bool]]:
    """Return the sum, the process, and whether it holds Ctrl-C back."""
    return lambda task: (task + number, os.getpid(), holds_interrupts())


def fail(_: int) -> Callable[[int], int]:
    raise InputError("cannot begin")


def fail_at(number: int) -> Callable[[int], int]:
    def work(task: int) -> int:
        if task == number:
            raise InputError(f"task {task} is bad")
        return task

    return work


def die_at(number: int) -> Callable[[int], int]:
    def work(task: int) -> int:
        if task == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    return work


def holds_interrupts() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
