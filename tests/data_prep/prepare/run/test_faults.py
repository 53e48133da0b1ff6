"""A preparation that is killed at any moment, or stopped by a full disk, goes on to the same bytes; bounded memory."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from deepsiam.data_prep.common import workers
from deepsiam.data_prep.prepare import batches, output, reading, spool, writing
from tests import toy
from tests.data_prep import raw
from tests.data_prep.raw import Capture, contents
from tests.killed import wait_until_ended

SHARDS = 20
Command = tuple[Any, ...]


@pytest.fixture(scope="module", autouse=True)
def small_batches() -> Iterator[None]:
    """Make many batches of little text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MIN_BYTES", 1 << 12)
        yield


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, dict[str, bytes]]:
    """A command without its --out, which reads 18 batches or more, and the output of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("jsonl")
    files = [raw.write_jsonl(folder / f"{number}.jsonl", raw.texts(60, number)) for number in range(6)]
    command = ("jsonl", *files, "--shards", SHARDS, "--held-out", 0.2, "--chunk-tokens", 100)
    raw.run(*command, "--out", folder / "out")
    return command, contents(folder / "out")


@pytest.fixture(scope="module")
def joining(datasketch: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, dict[str, bytes]]:
    """The same for dumps of Reddit, whose fragments are joined, with near-duplicates."""
    folder = tmp_path_factory.mktemp("reddit")
    dumps = raw.write_reddit(folder / "dumps", [raw.texts(4, number) for number in range(12)])
    command = ("reddit", dumps, "--near-duplicates", 0.8, "--shards", 2, "--held-out", 0.3, "--any-language")
    raw.run(*command, "--out", folder / "out")
    return command, contents(folder / "out")


def test_neither_workers_nor_the_order_of_the_work_change_a_byte(
    given: tuple[Command, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, whole = given
    forwards = workers.run

    def backwards(tasks: Sequence[Any], *others: Any) -> Iterator[Any]:
        return forwards(list(tasks)[::-1], *others)

    monkeypatch.setattr(workers, "run", backwards)
    raw.run(*command, "--out", tmp_path / "out", workers=2)
    assert contents(tmp_path / "out") == whole


def forked(begin: Callable[[], None], command: Command, number: int = 1) -> bool:
    """Run a command with so many workers in a fork that calls `begin` first; return whether it was killed."""
    if not (child := os.fork()):
        try:
            begin()
            raw.run(*command, workers=number)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


def killed_at(pattern: str, number: int, command: Command) -> bool:
    """Run a command that is killed when so many files or folders that match are made; return whether it was.

    It has then written one half of the next file.
    """
    left = number

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("os.mkdir", "os.rename"):
            left -= Path(arguments[event == "os.rename"]).match(pattern)

    def kill(descriptor: int) -> None:
        written = os.fstat(descriptor)
        if left <= 0 and stat.S_ISREG(written.st_mode):
            os.truncate(descriptor, written.st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    def begin() -> None:
        os.fsync = kill
        sys.addaudithook(note)

    return forked(begin, command)


def parent_killed_at(work: Any, number: int, command: Command, folder: Path) -> bool:
    """Run a command with two workers whose parent alone is killed when so many results of a work have come.

    Return whether it was, once the workers have ended by themselves.
    """
    run = workers.run

    def dying(tasks: Any, start: Any, *others: Any) -> Iterator[Any]:
        for done, result in enumerate(run(tasks, start, *others), 1):
            yield result
            if start is work and done == number:
                own_workers = [str(child.pid) for child in psutil.Process().children()]
                (folder / "workers").write_text(" ".join(own_workers))
                os.kill(os.getpid(), signal.SIGKILL)

    is_killed = forked(lambda: setattr(workers, "run", dying), command, 2)
    left = [int(number) for number in (folder / "workers").read_text().split()]
    assert len(left) == 2
    for number in left:
        with suppress(psutil.NoSuchProcess):
            wait_until_ended([psutil.Process(number)])  # waits for ever if it does not end
    return is_killed


def finished_files(work: Path) -> dict[str, int]:
    """Return the inodes of finished spool and shard files; a shard is finished once its entry exists."""
    paths = [*work.glob("read/*"), *work.glob("joined-*/*")]
    for shard in work.glob("written-*/*/*.tar"):
        entry = f"{shard.parent.name}-{shard.stem.removeprefix('shard-')}.json"
        if (shard.parents[1] / "done" / entry).exists():
            paths.append(shard)
    return {str(path): path.stat().st_ino for path in paths if path.suffix != ".partial"}


def go_on(monkeypatch: pytest.MonkeyPatch, out: Path, command: Command) -> None:
    """Rerun a killed command: it must not rewrite finished files, and must move all of them into place."""
    before = finished_files(out / ".partial")
    assert not list(out.glob("*/manifest.json"))
    again: list[str] = []
    write = spool.write

    def noted(path: Path, *arguments: Any) -> None:
        again.append(str(path))
        write(path, *arguments)

    monkeypatch.setattr(spool, "write", noted)
    raw.run(*command)
    assert not set(again) & set(before)
    for path, inode in before.items():
        if path.endswith(".tar"):
            split, name = path.split("/")[-2:]
            assert (out / split / name).stat().st_ino == inode
    assert not (out / ".partial").exists()


@pytest.mark.parametrize(
    ("source", "pattern", "number"),
    [
        ("given", "tokenizer-*", 1),
        ("given", "done/*", SHARDS - 5),
        ("joining", "joined-*/*", 1),
        ("joining", "near-*", 1),
    ],
    ids=["training", "writing", "joining", "comparing"],
)
def test_a_killed_run_goes_on(
    source: str,
    pattern: str,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    command, whole = request.getfixturevalue(source)
    command = (*command, "--out", tmp_path / "out")
    assert killed_at(pattern, number, command)
    go_on(monkeypatch, tmp_path / "out", command)
    assert contents(tmp_path / "out") == whole


@pytest.mark.parametrize("work", [reading.batch_reader, writing.shard_writer])
def test_a_run_whose_parent_is_killed_goes_on(
    given: tuple[Command, dict[str, bytes]], work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (*given[0], "--out", tmp_path / "out")
    assert parent_killed_at(work, 3, command, tmp_path)
    go_on(monkeypatch, tmp_path / "out", command)
    assert contents(tmp_path / "out") == given[1]


def test_a_run_killed_again_and_again_makes_its_way(given: tuple[Command, dict[str, bytes]], tmp_path: Path) -> None:
    kills = 0
    while killed_at("read/*", 6, (*given[0], "--out", tmp_path / "out")):
        kills += 1
    assert kills >= 3
    assert contents(tmp_path / "out") == given[1]


def refused_at_every_write(
    command: Command, out: Path, whole: Mapping[str, bytes], capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Run a command until it succeeds, on a disk that is full once for each file, and each state of a folder.

    Return how often it was refused.
    """
    refused: set[tuple[str, ...]] = set()

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        written = (os.readlink(f"/proc/self/fd/{descriptor}"), *(os.listdir(descriptor) if is_folder else ()))
        if written not in refused:
            refused.add(written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    for tries in count():
        try:
            message = raw.refusal(capfd, *command)
        except pytest.fail.Exception:
            assert contents(out) == whole
            return tries
        assert "No space left on device" in message
        assert not (out / "shards" / "manifest.json").exists() or contents(out / "shards") == under(whole, "shards")
    raise AssertionError


def under(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {name.removeprefix(f"{folder}/"): content for name, content in files.items() if name.startswith(folder)}


def test_a_disk_that_fills_up_at_any_write_loses_nothing(
    joining: tuple[Command, dict[str, bytes]], tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, whole = joining
    command = (*command, "--out", tmp_path / "out")
    assert refused_at_every_write(command, tmp_path / "out", whole, capfd, monkeypatch) > 20


@pytest.mark.usefixtures("datasketch")
def test_a_merge_that_the_disk_refuses_goes_on(
    tok: Path, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(60))
    wanted = ["--tokenizer", tok, "--near-duplicates", 0.8, "--shards", 2, "--held-out", 0.3]
    parts = raw.parts(tmp_path, 2, "jsonl", file, *wanted)
    raw.run("merge", *parts, "--out", tmp_path / "whole")
    command = ("merge", *parts, "--out", tmp_path / "out")
    whole = contents(tmp_path / "whole")
    assert refused_at_every_write(command, tmp_path / "out", whole, capfd, monkeypatch) > 10


@pytest.mark.usefixtures("datasketch")
def test_what_a_run_with_other_options_had_moved_into_place_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(60))
    out = tmp_path / "out"

    def refuse(folder: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(output, "sync", refuse)
    wanted = ["--held-out", 0.3, "--near-duplicates", 0.8]
    assert "cannot write: Input/output error" in raw.refusal(capfd, "jsonl", file, "--out", out, *wanted)
    assert sorted(path.name for path in out.iterdir()) == [".partial", "held_out", output.BANDS]
    monkeypatch.undo()
    raw.run("jsonl", file, "--out", out)
    raw.run("jsonl", file, "--out", tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount the small disk that this test fills")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_named_and_with_room_the_command_goes_on(
    given: tuple[Command, dict[str, bytes]], disk: Path, capfd: Capture
) -> None:
    (disk / "other").write_bytes(bytes((1 << 20) - 180_000))  # enough for all but the shards
    out = disk / "out"
    command = (*given[0], "--out", out)
    message = raw.refusal(capfd, *command)
    assert message.startswith(f"{out}/.partial/")
    assert message.endswith("cannot write: No space left on device")
    assert not (out / "shards").exists()
    assert not list(out.rglob("manifest.json"))
    (disk / "other").unlink()
    raw.run(*command)
    assert contents(out) == given[1]


# prints the peak of its memory after each command; a fork's begins with its parent's
MEASURED = """
import json, sys
from deepsiam.data_prep.__main__ import main
for command in json.loads(sys.argv[1]):
    assert main(command) == 0
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_memory_grows_neither_with_the_input_nor_with_a_line(tok: Path, tmp_path: Path) -> None:
    for times in (1, 3):
        (tmp_path / f"{times}.jsonl").write_bytes(b"".join(raw.jsonl(7000, seed) for seed in range(times)))  # > a batch
    endless = tmp_path / "endless.jsonl"
    with open(endless, "wb") as stream:
        stream.write(raw.jsonl(1000) + b'{"text": "')
        for _ in range(100):
            stream.write(b"word " * 200_000)
        stream.write(b'"}\n' + raw.jsonl(100, 1))
    options = ["--shards", 4, "--paragraphs", "--any-language", "--tokenizer", tok]  # to train one, text is held
    names = ("1", "3", "endless")
    commands = [raw.command("jsonl", tmp_path / f"{n}.jsonl", "--out", tmp_path / n, *options) for n in names]
    words = [sys.executable, "-c", MEASURED, json.dumps(commands)]
    ended = subprocess.run(words, cwd=toy.ROOT, env=toy.environment(), capture_output=True, text=True, check=True)
    said = [line for line in ended.stderr.splitlines() if "/s, " not in line]  # but progress, of a slow machine
    assert said == [f"bad record: {endless}: line 1,001: more than 16,777,216 bytes"]
    assert len(raw.documents(tmp_path / "endless")) == 1100
    first, third, last = (1024 * int(line) for line in ended.stdout.splitlines() if line.isdecimal())
    assert third < 1.09 * first
    assert last < third + 90e6  # less than that line
