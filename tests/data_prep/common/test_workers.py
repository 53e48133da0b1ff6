import errno
import os
import signal
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common import workers
from deepsiam.data_prep.common.errors import InputError, StoppedError


def _add(number: int) -> Callable[[int], int]:
    return lambda task: task + number


def _fail(_: int) -> Callable[[int], int]:
    raise InputError("cannot begin")


def _fail_at(number: int) -> Callable[[int], int]:
    def work(task: int) -> int:
        if task == number:
            raise InputError(f"task {task} is bad")
        return task

    return work


def _die_at(number: int) -> Callable[[int], int]:
    def work(task: int) -> int:
        if task == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    return work


def _process(_: int) -> Callable[[int], int]:
    return lambda task: os.getpid()


def _held_back(_: int) -> Callable[[int], bool]:
    return lambda task: _holds_interrupts()


def _holds_interrupts() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("number", [1, 2])
def test_every_task_is_done_once(number: int) -> None:
    assert sorted(workers.run(range(50), _add, (7,), number)) == list(range(7, 57))
    assert list(workers.run([], _add, (7,), number)) == []


def test_one_worker_is_this_process_and_more_are_not() -> None:
    assert set(workers.run(range(3), _process, (0,), 1)) == {os.getpid()}
    others = set(workers.run(range(20), _process, (0,), 2))
    assert os.getpid() not in others
    assert len(others) <= 2


@pytest.mark.parametrize("number", [1, 2])
def test_few_tasks_are_taken_ahead_of_the_results(number: int) -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for task in range(100):
            taken += 1
            yield task

    for done, _ in enumerate(workers.run(tasks(), _add, (0,), number), 1):
        assert taken <= done + 2 * workers.AHEAD * number


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_exception_ends_the_others(number: int) -> None:
    with pytest.raises(InputError, match="task 5 is bad"):
        list(workers.run(range(100_000), _fail_at, (5,), number))
    with pytest.raises(InputError, match="cannot begin"):
        list(workers.run(range(3), _fail, (0,), number))


@pytest.mark.parametrize("number", [1, 2])
def test_an_exception_of_the_task_iterator_comes_after_finished_results(number: int) -> None:
    def tasks() -> Iterator[int]:
        yield from range(20)
        raise InputError("no more")

    done: list[int] = []
    with pytest.raises(InputError, match="no more"):
        done.extend(workers.run(tasks(), _add, (0,), number))
    # results come in any order: all other tasks may overtake one
    assert len(done) == len(set(done)) >= 20 - workers.AHEAD * number


def test_a_worker_that_is_killed_is_one_clear_line() -> None:
    with pytest.raises(StoppedError, match="a worker was killed .*; run the same command with fewer --workers"):
        list(workers.run(range(100), _die_at, (3,), 2))


def test_shared_memory_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ProcessPoolExecutor", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    with pytest.raises(StoppedError, match=r"^/dev/shm: Read-only file system: worker .* or use --workers 1$"):
        list(workers.run([1], _add, (1,), 2))


def test_ctrl_c_reaches_this_process_but_no_worker_from_its_first_moment() -> None:
    assert set(workers.run(range(20), _held_back, (0,), 2)) == {True}
    assert not _holds_interrupts()
    results = map(signal.raise_signal, workers.run([signal.SIGINT] * 100, _add, (0,), 2))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            next(results)
    finally:
        signal.signal(signal.SIGINT, before)
