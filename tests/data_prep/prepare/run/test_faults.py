"""A preparation that is killed at any moment, or stopped by a full disk, goes on to the same bytes; bounded memory."""

import glob
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from deepsiam.data_prep.common import workers
from deepsiam.data_prep.prepare import batches, output, spool
from tests import toy
from tests.data_prep import raw
from tests.data_prep.raw import contents
from tests.killed import wait_until_ended

SHARDS = 20


@pytest.fixture(scope="module", autouse=True)
def small_batches() -> Iterator[None]:
    """Make many batches of little text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MIN_BYTES", 1 << 12)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """18 batches or more."""
    folder = tmp_path_factory.mktemp("jsonl")
    return [raw.write_jsonl(folder / f"{number}.jsonl", raw.texts(60, number)) for number in range(6)]


@pytest.fixture(scope="module")
def whole(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the output of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "out"
    raw.run("jsonl", *files, *options(out))
    return contents(out)


def options(out: Path) -> list[object]:
    return ["--out", out, "--shards", SHARDS, "--held-out", 0.2, "--chunk-tokens", 100]


def test_neither_workers_nor_the_order_of_the_work_change_a_byte(
    files: list[Path], whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.run("jsonl", *files, *options(tmp_path / "two"), workers=2)
    assert contents(tmp_path / "two") == whole
    forwards = workers.run

    def backwards(tasks: Sequence[Any], *others: Any) -> Iterator[Any]:
        return forwards(list(tasks)[::-1], *others)

    monkeypatch.setattr(workers, "run", backwards)
    raw.run("jsonl", *files, *options(tmp_path / "backwards"))
    assert contents(tmp_path / "backwards") == whole


def forked(begin: Callable[[], None], *command: Any, number: int = 1) -> int:
    """Run a command with so many workers in a fork that calls `begin` first; return its id."""
    if not (child := os.fork()):
        try:
            begin()
            raw.run(*command, workers=number)
            os._exit(0)
        finally:
            os._exit(1)
    return child


def killed_once_there_are(number: int, pattern: str, *command: Any) -> bool:
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

    _, status = os.waitpid(forked(begin, *command), 0)
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


def kill_the_parent_once_there_are(number: int, pattern: str, *command: Any) -> bool:
    """Start a command with two workers and kill their parent alone, once so many files match; return whether it was.

    The workers have then ended by themselves.
    """

    def start_workers_anew() -> None:
        workers.ProcessPoolExecutor = ProcessPoolExecutor

    parent = forked(start_workers_anew, *command, number=2)
    while len([path for path in glob.glob(pattern) if not path.endswith(".partial")]) < number:
        if os.waitpid(parent, os.WNOHANG) != (0, 0):
            return False
        time.sleep(0.001)
    group = psutil.Process(parent).children(recursive=True)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert len(group) >= 2
    wait_until_ended(group)  # waits for ever if they do not end
    return True


def finished_files(work: Path) -> dict[str, int]:
    """Return the inodes of finished spool and shard files; a shard is finished once its entry exists."""
    paths = [*work.glob("read/*"), *work.glob("joined-*/*")]
    for shard in work.glob("written-*/*/*.tar"):
        entry = f"{shard.parent.name}-{shard.stem.removeprefix('shard-')}.json"
        if (shard.parents[1] / "done" / entry).exists():
            paths.append(shard)
    return {str(path): path.stat().st_ino for path in paths if path.suffix != ".partial"}


def go_on(monkeypatch: pytest.MonkeyPatch, out: Path, *command: Any) -> None:
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
            assert not name or (out / split / name).stat().st_ino == inode
    assert not (out / ".partial").exists()


@pytest.mark.parametrize(
    ("kill", "number", "pattern"),
    [
        pytest.param(kill_the_parent_once_there_are, 2, "read/*", id="reading, the parent"),
        pytest.param(kill_the_parent_once_there_are, 3, "written-*/done/*", id="writing, the parent"),
        pytest.param(killed_once_there_are, 1, "tokenizer-*", id="training"),
        pytest.param(killed_once_there_are, SHARDS - 5, "written-*/done/*", id="writing"),
    ],
)
def test_a_killed_run_goes_on(
    files: list[Path],
    whole: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kill: Callable[..., bool],
    number: int,
    pattern: str,
) -> None:
    out = tmp_path / "out"
    command = ("jsonl", *files, *options(out))
    assert kill(number, f"{out}/.partial/{pattern}", *command)
    go_on(monkeypatch, out, *command)
    assert contents(out) == whole


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object], dict[str, bytes]]:
    """Return dumps of Reddit, options, and the output of an uninterrupted run."""
    pytest.importorskip("datasketch", reason="needs the packages of the extra `dumps`")
    folder = tmp_path_factory.mktemp("reddit")
    raw.write_reddit(folder / "dumps", [raw.texts(4, number) for number in range(12)])
    wanted = ["--near-duplicates", 0.8, "--shards", 2, "--held-out", 0.3, "--any-language"]
    raw.run("reddit", folder / "dumps", "--out", folder / "whole", *wanted)
    return folder / "dumps", wanted, contents(folder / "whole")


@pytest.mark.parametrize("moment", ["read/*", "joined-*/*", "near-*", "done/*"])
def test_a_killed_run_that_joins_goes_on(
    dumps: tuple[Path, list[object], dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder, wanted, whole = dumps
    command = ("reddit", folder, "--out", tmp_path / "out", *wanted)
    assert killed_once_there_are(1, moment, *command)
    go_on(monkeypatch, tmp_path / "out", *command)
    assert contents(tmp_path / "out") == whole


def test_a_run_killed_again_and_again_makes_its_way(files: list[Path], whole: dict[str, bytes], tmp_path: Path) -> None:
    kills = 0
    while killed_once_there_are(6, "read/*", "jsonl", *files, *options(tmp_path / "out")):
        kills += 1
    assert kills >= 3
    assert contents(tmp_path / "out") == whole


Command = tuple[object, ...]


def faults(
    capfd: pytest.CaptureFixture[str],
    disk_full_after: Callable[[int], None],
    out: Path,
    command: Command,
    whole: Mapping[str, bytes],
) -> int:
    """Run a command repeatedly: the n-th time the disk is full at the n-th file, then it is rerun with free space."""
    for good_syncs in count():
        shutil.rmtree(out, ignore_errors=True)
        disk_full_after(good_syncs)
        try:
            message = raw.refusal(capfd, *command)
        except pytest.fail.Exception:
            return good_syncs
        finally:
            disk_full_after(sys.maxsize)
        assert "No space left on device" in message
        assert not (out / "shards" / "manifest.json").exists() or contents(out / "shards") == under(whole, "shards")
        raw.run(*command)
        assert contents(out) == whole
    raise AssertionError


def under(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {name.removeprefix(f"{folder}/"): content for name, content in files.items() if name.startswith(folder)}


def test_a_disk_that_fills_up_at_any_write_loses_nothing(
    dumps: tuple[Path, list[object], dict[str, bytes]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    disk_full_after: Callable[[int], None],
) -> None:
    folder, wanted, whole = dumps
    command = ("reddit", folder, "--out", tmp_path / "out", *wanted)
    assert faults(capfd, disk_full_after, tmp_path / "out", command, whole) > 20


@pytest.mark.usefixtures("datasketch")
def test_a_merge_that_the_disk_refuses_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], disk_full_after: Callable[[int], None]
) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(60))
    tok = raw.vocabulary(tmp_path / "tokenizer.json")
    wanted = ["--tokenizer", tok, "--near-duplicates", 0.8, "--shards", 2, "--held-out", 0.3]
    parts = [tmp_path / str(number) for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        raw.run("jsonl", file, *wanted, "--part", f"{number}/2", "--out", part)
    raw.run("merge", *parts, "--out", tmp_path / "whole")
    command = ("merge", *parts, "--out", tmp_path / "out")
    tries = faults(capfd, disk_full_after, tmp_path / "out", command, contents(tmp_path / "whole"))
    assert tries > 10


@pytest.mark.usefixtures("datasketch")
def test_what_a_run_with_other_options_had_moved_into_place_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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


@pytest.mark.parametrize("room", [20_000, 180_000, 320_000], ids=["reading", "writing", "still writing"])
def test_a_full_disk_is_named_and_with_room_the_command_goes_on(
    files: list[Path], whole: dict[str, bytes], disk: Path, capfd: pytest.CaptureFixture[str], room: int
) -> None:
    (disk / "other").write_bytes(bytes((1 << 20) - room))
    command = ("jsonl", *files, *options(out := disk / "out"))
    message = raw.refusal(capfd, *command)
    assert message.startswith(f"{out}/.partial/")
    assert message.endswith("cannot write: No space left on device")
    assert not (out / "shards").exists()
    assert not list(out.rglob("manifest.json"))
    (disk / "other").unlink()
    raw.run(*command)
    assert contents(out) == whole


# a small process starts the command: it begins as a copy of its parent, whose memory counts as its own
MEASURED = """
import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def peak(*command: object) -> tuple[int, str, int]:
    """Return exit code, stderr and peak memory, in bytes, of a command in its own process."""
    words = [sys.executable, "-m", "data_prep", *raw.command("jsonl", *command)]
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], cwd=toy.ROOT, env=toy.environment(), capture_output=True, text=True
    )
    code, kilobytes = map(int, run.stdout.splitlines()[-1].split())
    return code, run.stderr, kilobytes * 1024


@pytest.mark.slow
def test_a_document_of_100_megabytes_in_one_line_is_named_and_not_held(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with open(file, "wb") as stream:
        stream.write(raw.jsonl(1000) + b'{"text": "')
        for _ in range(100):
            stream.write(b"word " * 200_000)
        stream.write(b'"}\n' + raw.jsonl(100, 1))
    code, message, memory = peak(file, "--out", tmp_path / "out")
    said = [line for line in message.splitlines() if not line.startswith("read: ")]  # progress, of a slow machine
    assert (code, said) == (0, [f"bad record: {file}: line 1,001: more than 16,777,216 bytes"])
    assert len(raw.documents(tmp_path / "out")) == 1100
    assert memory < 150e6


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    tok = raw.vocabulary(tmp_path / "tokenizer.json")  # without it, 32 MiB of text are held to train one
    peaks = {}
    for times in (1, 4):
        file = tmp_path / f"{times}.jsonl"
        file.write_bytes(b"".join(raw.jsonl(7000, seed) for seed in range(times)))  # a batch, and some
        options = ["--shards", 4 * times, "--paragraphs", "--any-language", "--tokenizer", tok]
        code, message, peaks[times] = peak(file, "--out", tmp_path / str(times), *options)
        assert code == 0, message
    assert peaks[4] < 1.07 * peaks[1]
