"""A preparation that is killed at any moment, or stopped by a full disk, goes on to the same bytes; bounded memory."""

import glob
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from deepsiam.data_prep.common import workers
from deepsiam.data_prep.prepare import output, spool
from tests.data_prep import raw
from tests.data_prep.raw import contents
from tests.killed import wait_until_ended

SHARDS = 60
PAD = "x" * 50_000  # an unused field makes many batches from little text


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """18 batches or more."""
    folder = tmp_path_factory.mktemp("jsonl")
    return [
        raw.write_jsonl(folder / f"{number}.jsonl", [{"text": text, "pad": PAD} for text in raw.texts(60, number)])
        for number in range(6)
    ]


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


def wait_for(run: subprocess.Popen[str], pattern: str, number: int) -> None:
    """Wait until `number` files match, which happens before the run ends."""
    while len([path for path in glob.glob(pattern) if not path.endswith(".partial")]) < number:
        assert run.poll() is None, f"over before {pattern}: {run.communicate()}"
        time.sleep(0.001)


def kill(run: subprocess.Popen[str], parent_alone: bool) -> None:
    """Kill all processes of a run, or only the parent, after which the others must end by themselves."""
    group = psutil.Process(run.pid).children(recursive=True)
    if parent_alone:
        os.kill(run.pid, signal.SIGKILL)
    else:
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    wait_until_ended(group)  # waits for ever if they do not end


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


MOMENTS = {  # that all processes are killed while reading is also tested below
    "reading, the parent": ("read/*", 2, True),
    "training a vocabulary, the parent": ("tokenizer-*", 1, True),
    "training a vocabulary": ("tokenizer-*", 1, False),
    "writing, the parent": ("written-*/done/*", 3, True),
    "still writing": ("written-*/done/*", SHARDS - 10, False),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_goes_on(
    files: list[Path], whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    out = tmp_path / "out"
    run = raw.start("jsonl", *files, *options(out), workers=2)
    pattern, number, parent_alone = MOMENTS[moment]
    wait_for(run, f"{out}/.partial/{pattern}", number)
    kill(run, parent_alone)
    go_on(monkeypatch, out, "jsonl", *files, *options(out))
    assert contents(out) == whole


@pytest.mark.usefixtures("datasketch")
@pytest.mark.parametrize("moment", ["read/*", "joined-*/*", "near-*", "written-*/done/*"])
def test_a_killed_run_that_joins_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    folder = raw.write_reddit(tmp_path / "dumps", [raw.texts(4, number) for number in range(300)])
    wanted = ["--near-duplicates", 0.8, "--shards", 8]
    raw.run("reddit", folder, "--out", tmp_path / "whole", *wanted)
    out = tmp_path / "out"
    run = raw.start("reddit", folder, "--out", out, *wanted)
    wait_for(run, f"{out}/.partial/{moment}", 1)
    kill(run, parent_alone=False)
    go_on(monkeypatch, out, "reddit", folder, "--out", out, *wanted)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_run_killed_again_and_again_makes_its_way(files: list[Path], whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in count(1):
        run = raw.start("jsonl", *files, *options(out), workers=1)
        try:
            wait_for(run, f"{out}/.partial/read/*", 6 * number)
        except AssertionError:
            assert number > 2
            break
        kill(run, parent_alone=False)
    assert contents(out) == whole


Command = tuple[object, ...]


def faults(
    monkeypatch: pytest.MonkeyPatch,
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
            monkeypatch.undo()
        assert "No space left on device" in message
        assert not (out / "shards" / "manifest.json").exists() or contents(out / "shards") == under(whole, "shards")
        raw.run(*command)
        assert contents(out) == whole
    raise AssertionError


def under(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {name.removeprefix(f"{folder}/"): content for name, content in files.items() if name.startswith(folder)}


@pytest.mark.usefixtures("datasketch")
def test_a_disk_that_fills_up_at_any_write_loses_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    disk_full_after: Callable[[int], None],
) -> None:
    folder = raw.write_reddit(tmp_path / "dumps", [raw.texts(4, number) for number in range(60)])
    wanted = ["--near-duplicates", 0.8, "--shards", 2, "--held-out", 0.3]
    raw.run("reddit", folder, "--out", tmp_path / "whole", *wanted)
    command = ("reddit", folder, "--out", tmp_path / "out", *wanted)
    tries = faults(monkeypatch, capfd, disk_full_after, tmp_path / "out", command, contents(tmp_path / "whole"))
    assert tries > 20


@pytest.mark.usefixtures("datasketch")
def test_a_merge_that_the_disk_refuses_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    disk_full_after: Callable[[int], None],
) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(60))
    tok = raw.vocabulary(tmp_path / "tokenizer.json")
    wanted = ["--tokenizer", tok, "--near-duplicates", 0.8, "--shards", 2, "--held-out", 0.3]
    parts = [tmp_path / str(number) for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        raw.run("jsonl", file, *wanted, "--part", f"{number}/2", "--out", part)
    raw.run("merge", *parts, "--out", tmp_path / "whole")
    command = ("merge", *parts, "--out", tmp_path / "out")
    tries = faults(monkeypatch, capfd, disk_full_after, tmp_path / "out", command, contents(tmp_path / "whole"))
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
    """A disk of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount the small disk that this test fills")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("room", [200_000, 900_000, 1_200_000], ids=["reading", "writing", "still writing"])
def test_a_full_disk_is_named_and_with_room_the_command_goes_on(
    disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], room: int
) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(4000))
    raw.run("jsonl", file, "--out", tmp_path / "whole", "--shards", 8)
    (disk / "other").write_bytes(bytes(3 * (1 << 20) - room))
    out = disk / "out"
    message = raw.refusal(capfd, "jsonl", file, "--out", out, "--shards", 8)
    assert message.startswith(f"{out}/.partial/")
    assert message.endswith("cannot write: No space left on device")
    assert not (out / "shards").exists()
    assert not list(out.rglob("manifest.json"))
    (disk / "other").unlink()
    raw.run("jsonl", file, "--out", out, "--shards", 8)
    assert contents(out) == contents(tmp_path / "whole")


GIGABYTE = 1 << 30


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
        [sys.executable, "-c", MEASURED, *words], cwd=raw.ROOT, env=raw.environment(), capture_output=True, text=True
    )
    code, kilobytes = map(int, run.stdout.splitlines()[-1].split())
    return code, run.stderr, kilobytes * 1024


@pytest.mark.slow
def test_a_document_of_200_megabytes_in_one_line_is_named_and_not_held(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with open(file, "wb") as stream:
        stream.write(raw.jsonl(1000) + b'{"text": "')
        for _ in range(200):
            stream.write(b"word " * 200_000)
        stream.write(b'"}\n' + raw.jsonl(1000, 1))
    code, message, memory = peak(file, "--out", tmp_path / "out")
    assert (code, message) == (0, f"bad record: {file}: line 1,001: more than 16,777,216 bytes\n")
    assert len(raw.documents(tmp_path / "out")) == 2000
    assert memory < 1.5 * GIGABYTE


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    tok = raw.vocabulary(tmp_path / "tokenizer.json")  # without it, 32 MiB of text are held to train one
    peaks = {}
    for times in (1, 8):
        file = tmp_path / f"{times}.jsonl"
        file.write_bytes(b"".join(raw.jsonl(8000, seed) for seed in range(times)))
        options = ["--shards", 4 * times, "--paragraphs", "--tokenizer", tok]
        code, message, peaks[times] = peak(file, "--out", tmp_path / str(times), *options)
        assert code == 0, message
    assert peaks[8] < 1.15 * peaks[1]
