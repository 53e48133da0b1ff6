"""Workers do each task once; an edited manifest is refused in one line; numbers depend on a key alone."""

import copy
import errno
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common import provenance, workers
from deepsiam.data_prep.common.errors import InputError, StoppedError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.shards.manifest import Manifest
from tests.data_prep import raw
from tests.data_prep.common import worker_tasks
from tests.data_prep.forge import edit


@pytest.fixture(autouse=True)
def forked_workers() -> None:
    """Start workers anew here."""


@pytest.mark.parametrize("number", [1, 2])
def test_every_task_is_done_once_and_few_are_taken_ahead_of_the_results(number: int) -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for task in range(50):
            taken += 1
            yield task
        raise InputError("no more")

    done: list[int] = []
    processes, held_back = set[int](), set[bool]()

    def work() -> None:
        for result, process, held in workers.run(tasks(), worker_tasks.add, (7,), number):
            done.append(result)
            processes.add(process)
            held_back.add(held)
            assert taken <= len(done) + 2 * workers.AHEAD * number

    with pytest.raises(InputError, match="no more"):
        work()
    # results come in any order, and those not yet taken are lost: all other tasks may overtake one
    assert len(done) == len(set(done)) >= 50 - workers.AHEAD * number
    assert set(done) <= set(range(7, 57))
    assert sorted(result for result, *_ in workers.run(range(30), worker_tasks.add, (7,), number)) == [*range(7, 37)]
    # one worker is this process, which Ctrl-C reaches; no other gets one from its first moment
    assert (os.getpid() in processes) == (number == 1)
    assert len(processes) <= number
    assert held_back == {number > 1}
    assert list(workers.run([], worker_tasks.add, (7,), number)) == []


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_exception_ends_the_others(number: int) -> None:
    with pytest.raises(InputError, match="task 5 is bad"):
        list(workers.run(range(100_000), worker_tasks.fail_at, (5,), number))
    with pytest.raises(InputError, match="cannot begin"):
        list(workers.run(range(3), worker_tasks.fail, (0,), number))


def test_a_worker_that_is_killed_is_one_clear_line() -> None:
    with pytest.raises(StoppedError, match="a worker was killed .*; run the same command with fewer --workers"):
        list(workers.run(range(100), worker_tasks.die_at, (3,), 2))


def test_shared_memory_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ProcessPoolExecutor", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    with pytest.raises(StoppedError, match=r"^/dev/shm: Read-only file system: worker .* or use --workers 1$"):
        list(workers.run([1], worker_tasks.add, (1,), 2))


def test_ctrl_c_reaches_this_process() -> None:
    assert not worker_tasks.holds_interrupts()
    tasks = workers.run([signal.SIGINT] * 100, worker_tasks.add, (0,), 2)
    results = (signal.raise_signal(result) for result, *_ in tasks)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            next(results)
    finally:
        signal.signal(signal.SIGINT, before)


OPTIONS = ["--held-out", 0.2]
VALUES: list[Any] = [None, -1, 0, 1, 5, 1e15, 10**14, 1 << 70, 0.5, True, "x", "", [], {}, [1], {"a": 1}, [[]]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two parts, with documents held out."""
    folder = tmp_path_factory.mktemp("parts")
    tok = raw.vocabulary(folder / "tokenizer.json")
    file = raw.write_jsonl(folder / "a.jsonl", raw.texts(60))
    return raw.parts(folder, 2, "jsonl", file, "--tokenizer", tok, *OPTIONS)


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in nested dictionaries and lists."""
    if before:
        yield before
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(inner, (*before, key))


def edited(source: dict[str, Any], path: tuple[Any, ...], value: Any, remove: bool) -> dict[str, Any]:
    changed = copy.deepcopy(source)
    at: Any = changed
    for key in path[:-1]:
        at = at[key]
    if remove:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed


@given(st.data())
# a manifest has 92 values, each of which may be edited
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=5 * settings.default.max_examples)
def test_an_edited_manifest_is_refused_with_one_line_or_makes_no_harm(
    two: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    for name in ("part", "out"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    part = Path(shutil.copytree(two[1], tmp_path / "part"))
    source = Manifest.load(part / "shards").source
    path = data.draw(st.sampled_from(list(paths(source))))
    changed = edited(source, path, data.draw(st.sampled_from(VALUES)), data.draw(st.booleans()))
    edit(part / "shards", lambda record: record.update(source=changed))
    merge = ["merge", two[0], part, "--out", tmp_path / "out", "--workers", 1]
    continued = ["jsonl", two[0].parent / "a.jsonl", *OPTIONS, "--part", "2/2", "--out", part]
    for command in (merge, [*continued, "--tokenizer", two[0].parent / "tokenizer.json"]):
        capfd.readouterr()
        try:
            code = main([str(word) for word in command])
        except SystemExit as exit:
            code = int(exit.code or 0)
        lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("data_prep: ")]
        assert (code, len(lines)) in [(0, 0), (2, 1)]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("ranges",), 0, "source.ranges: input should be greater than or equal to 1"),
        (("ranges",), "x", "source.ranges: input should be a valid integer"),
        (("stages",), {}, "source.stages: input should be a valid list"),
        (("spooled",), {"documents": 1e15}, "source.spooled.documents: input should be a valid integer"),
        (("spooled", "documents"), 10**14, "spooled.documents 100000000000000 of 30 that left the stage cut"),
        (("part",), {"number": 3, "of": 2}, "source.part: number 3 is above of 2"),
        (("options",), 5, "source.options: input should be a valid dictionary"),
        (("options", "shards"), 10**8, "source.options.shards: input should be less than or equal to 100000"),
        (("inputs",), 5, "source.inputs: input should be a valid dictionary"),
        (("inputs", "number"), 7, "source.inputs: number 7 of 1 files"),
        (("counts", "dropped"), {"bad": -1}, "source.counts.dropped.bad: input should be greater than or equal to 0"),
        (("unknown",), 1, "source.unknown: extra inputs are not permitted"),
    ],
)
def test_the_message_names_the_key(two: list[Path], path: tuple[str, ...], value: Any, message: str) -> None:
    source = Manifest.load(two[0] / "shards").source
    with pytest.raises(InputError, match=f"^here: .*{message}.*; prepare the data set again$"):
        provenance.checked(edited(source, path, value, remove=False), "here")


def test_a_name_alone_determines_the_numbers() -> None:
    drawn = [np.array([keyed_rng(f"a#{number}").integers(100) for number in range(2000)]) for _ in range(2)]
    assert np.array_equal(*drawn)
    # names that are nearly equal have unrelated numbers: standard deviations of 0.65 and 0.022
    assert abs(drawn[0].mean() - 49.5) < 3
    assert abs(np.corrcoef(drawn[0][:-1], drawn[0][1:])[0, 1]) < 0.12
