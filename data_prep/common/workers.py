"""Distribute tasks over processes: results as they are ready, few tasks in memory, and one failure stops all."""

import errno
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from deepsiam.data_prep.common.environment import variable
from deepsiam.data_prep.common.errors import OF_DISKS, OF_PATHS, SHARED_MEMORY, StoppedError
from deepsiam.data_prep.common.progress import track

Task = TypeVar("Task")
Result = TypeVar("Result")
AHEAD = 2  # tasks queued for each worker, including the running one
# each worker uses one core; multithreaded tokenising would cost a third more time on each core
ONE_THREAD = "TOKENIZERS_PARALLELISM", "false"

_start: Callable[[], Callable[[Any], Any]]  # of this worker
_work: Callable[[Any], Any] | None = None


def run(
    tasks: Iterable[Task], start: Callable[..., Callable[[Task], Result]], arguments: tuple[Any, ...], workers: int
) -> Iterator[Result]:
    """Yield the result of every task, in any order; in each process, `start(*arguments)` returns the task function.

    One worker is this process itself. The first exception of a task, and Ctrl-C here, end the others.

    Raises:
        StoppedError: a worker was killed, most likely because memory ran out.
    """
    if workers == 1:
        with variable(*ONE_THREAD):
            yield from map(start(*arguments), tasks)
        return
    # not forked: workers must not inherit a reader's threads and open files
    context = multiprocessing.get_context("spawn")
    with shared_memory_errors("--workers 1"):
        pool = ProcessPoolExecutor(workers, context, _begin, (start, arguments))
    waiting: set[Future[Result]] = set()
    try:
        for task in tasks:
            if len(waiting) == AHEAD * workers:
                futures, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in futures)
            # pickled here, once: the pool keeps tasks until their results come, and objects take more memory than bytes
            content = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
            with _interrupts_held():  # this may start a worker
                waiting.add(pool.submit(_do, content))
        while waiting:
            futures, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in futures)
    except BrokenProcessPool:
        raise StoppedError(
            "a worker was killed (out of memory?); run the same command with fewer --workers to continue"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def complete(
    tasks: Sequence[Task],
    files: Sequence[Path],
    start: Callable[..., Callable[[Task], Any]],
    arguments: tuple[Any, ...],
    workers: int,
    title: str,
    unit: str,
) -> None:
    """Do the tasks whose files do not exist yet, as `run` does; report the progress on stderr."""
    missing_tasks = [task for task, path in zip(tasks, files, strict=True) if not path.exists()]
    for _ in track(run(missing_tasks, start, arguments, workers), title, unit, len(missing_tasks)):
        pass


@contextmanager
def shared_memory_errors(remedy: str) -> Iterator[None]:
    """Turn the error of a /dev/shm without room, or not writable, into a StoppedError; `remedy`: what to use instead.

    Python keeps the locks of its worker processes there, and its error names no file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOENT, *OF_DISKS, *OF_PATHS):
            raise
        raise StoppedError(
            f"{SHARED_MEMORY}: {error.strerror}: worker processes need it: make it writable, with room, or use {remedy}"
        ) from None


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back until the block ends; a process that starts in it never gets one, not even while it imports."""
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)


def _begin(start: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    global _start
    os.environ.update([ONE_THREAD])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _start = partial(start, *arguments)


def _do(task: bytes) -> Any:
    global _work
    _work = _work or _start()  # not in _begin: its exceptions do not reach the parent
    return _work(pickle.loads(task))


def _end_with_parent() -> None:
    """Exit when the parent is killed: else the worker waits for tasks forever, and writes where the next run writes."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)
