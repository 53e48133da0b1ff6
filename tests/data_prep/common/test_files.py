"""Files and folders are complete or absent; JSON has types and bounds; any text can be printed."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common import files
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_folder
from deepsiam.data_prep.common.json_file import Count, FileName, InsideName, Record, Sha256, read_json


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with files.lock(tmp_path / "lock", "held by another"):
        monkeypatch.setattr("fcntl.lockf", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
        with pytest.raises(InputError, match=r"lock: cannot be locked \(Function not implemented\): use a file system"):
            files.lock(tmp_path / "lock", "held by another")
        monkeypatch.setattr("fcntl.lockf", Mock(side_effect=BlockingIOError(errno.EAGAIN, "try again")))
        with pytest.raises(InputError, match="held by another"):
            files.lock(tmp_path / "lock", "held by another")


def test_a_file_appears_only_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with files.whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]
    assert files.sha256_of(path) == hashlib.sha256(b"new").hexdigest()


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), files.whole_file(path) as file:
        file.write("text")  # type: ignore[call-overload]
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_whose_names_cannot_be_synced_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    with files.whole_file(tmp_path / "a") as file:
        file.write(b"1")
    assert (tmp_path / "a").read_bytes() == b"1"
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EINVAL, "Invalid argument")))
    with pytest.raises(InputError, match="b: cannot write: Invalid argument"), files.whole_file(tmp_path / "b"):
        pass
    assert os.listdir(tmp_path) == ["a"]


def test_missing_and_misplaced_paths_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="nothing: cannot read: No such file"):
        files.read_bytes(tmp_path / "nothing")
    with pytest.raises(InputError, match="nothing: cannot read"):
        files.sha256_of(tmp_path / "nothing")
    files.make_directory(tmp_path / "new" / "sub")
    assert (tmp_path / "new" / "sub").is_dir()
    with pytest.raises(InputError, match="sub: cannot create this folder: Not a directory"):
        files.make_directory(tmp_path / "file" / "sub")
    with pytest.raises(InputError, match="a: cannot write"), files.whole_file(tmp_path / "no" / "a"):
        pass


def test_a_link_stays_and_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with files.whole_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    for device in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(InputError, match="is no plain file"), files.whole_file(device):
            pass
    assert not list(tmp_path.glob("*.partial"))


def _planted(name: Path, kind: str) -> Path:
    """What another user puts under a temporary name: a link to a file that is not theirs, which this returns."""
    target = name.parent / "precious"
    target.write_text("precious")
    if kind == "pipe":
        os.mkfifo(name)
    else:
        (name.hardlink_to if kind == "hard" else name.symlink_to)(target)
    return target


@pytest.mark.parametrize("kind", ["symbolic", "hard", "pipe"])
@pytest.mark.parametrize("write", [files.whole_file, files.whole_folder, files.open_new])
def test_a_link_under_a_temporary_name_is_replaced(tmp_path: Path, write: Any, kind: str) -> None:
    temporary = tmp_path / ("a" if write is files.open_new else "a.partial")
    target = _planted(temporary, kind)
    with write(tmp_path / "a") as written:
        (written / "file").write_text("new") if isinstance(written, Path) else written.write(b"new")
    assert target.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["a", "precious"]
    assert not (tmp_path / "a").is_symlink()


def test_a_folder_under_a_linked_temporary_name_is_refused_and_a_replaced_one_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("precious")
    for name in (".partial", "step-1.partial", "out.old.partial", "lock"):
        (tmp_path / name).symlink_to("precious" if name != "lock" else "precious/file")
    for name in (".partial", "step-1.partial/engine"):
        with pytest.raises(InputError, match="partial: is a link under a temporary name: remove it"):
            files.make_directory(tmp_path / name)
    with pytest.raises(InputError, match="lock: cannot write: Too many levels of symbolic links"):
        files.lock(tmp_path / "lock", "held by another")
    for _ in range(2):
        with whole_folder(tmp_path / "out") as folder:
            (folder / "new").touch()
    files.remove(tmp_path / "step-1.partial")
    assert not (tmp_path / "out.old.partial").exists()
    assert os.listdir(tmp_path / "precious") == ["file"]


@pytest.mark.parametrize("folder", [".", ".."])
def test_a_folder_is_refused_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="is a folder: name a file"), files.whole_file(Path(folder)):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]


def test_a_kill_between_the_renames_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("old")
    (tmp_path / "new").mkdir()
    rename = os.replace
    monkeypatch.setattr(files.os, "replace", lambda a, b: rename(a, b) if Path(a).name == "out" else _killed())
    with pytest.raises(KeyboardInterrupt):
        files.replace_folder(tmp_path / "new", tmp_path / "out")
    monkeypatch.undo()
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        files.undo_replace(tmp_path)
        assert (tmp_path / "out" / "file").read_text() == "old"
    (tmp_path / "out.old.partial").mkdir()  # killed before it was removed
    files.undo_replace(tmp_path)
    assert (tmp_path / "out" / "file").read_text() == "old"


def _killed() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("folder", [".", "..", "a/..", "/"])
def test_a_folder_that_is_always_there_is_not_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="is the name of no new folder: name one, such as"), whole_folder(Path(folder)):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_is_replaced_completely_or_not_at_all(tmp_path: Path) -> None:
    for content in ("one", "two"):
        with whole_folder(tmp_path / "out") as folder:
            (folder / "file").write_text(content)
            assert (tmp_path / "out").exists() == (content == "two")
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        assert (tmp_path / "out" / "file").read_text() == content
    with pytest.raises(InputError, match="cannot write: File exists"), whole_folder(tmp_path / "out") as folder:
        folder.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "file").read_text() == "two"


class Part(Record):
    name: FileName
    sha256: Sha256


class Whole(Record):
    count: Count
    share: float = 0.0
    parts: dict[InsideName, Part] = {}
    free: dict[str, Any] = {}


PART = '{"name": "a.npy", "sha256": "' + "0f" * 32 + '"}'


def test_values_are_read_and_keys_of_newer_code_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"count": 7, "parts": {"b/c.npy": ' + PART + '}, "new": [1]}')
    read = read_json(tmp_path / "a.json", Whole, "make it again")
    assert (read.count, read.share, read.parts["b/c.npy"].name) == (7, 0.0, "a.npy")
    assert read_json(tmp_path / "a.json", dict[str, Any], "").keys() == {"count", "parts", "new"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "count: field required"),
        ('{"count": null}', "count: input should be a valid integer"),
        ('{"count": "7"}', "count: input should be a valid integer"),
        ('{"count": true}', "count: input should be a valid integer"),
        ('{"count": 7.0}', "count: input should be a valid integer"),
        ('{"count": -1}', "count: input should be greater than or equal to 0"),
        ('{"count": 1e400}', "count: input should be a valid integer"),
        ('{"count": 281474976710656}', "count: input should be less than 281474976710656"),
        ('{"count": 1%s}' % ("0" * 5000), "not its kind of JSON .*number out of range"),
        ('{"count": 7, "share": NaN}', "share: input should be a finite number"),
        ('{"count": 7, "share": 1e400}', "share: input should be a finite number"),
        ('{"count": 7, "parts": [1]}', "parts: input should be"),
        ('{"count": 7, "parts": {"../a": ' + PART + "}}", r"parts.*: string should match pattern"),
        ('{"count": 7, "parts": {"/etc/a": ' + PART + "}}", r"parts.*: string should match pattern"),
        ('{"count": 7, "parts": {"a": {"name": "..", "sha256": ""}}}', "parts.a.name: string should match pattern"),
        ('{"count": 7, "free": %s}' % ('{"a":' * 5000), "not its kind of JSON .*recursion limit"),
        ('{"count": 7, "free": {"a": "\\ud800"}}', "not its kind of JSON"),
        ("[" * 100_000, "not its kind of JSON .*recursion limit"),
        ("[1]", "not its kind of JSON"),
        ("null", "not its kind of JSON"),
        ("", "not its kind of JSON"),
        ("\x00", "not its kind of JSON"),
    ],
)
def test_every_damage_is_one_line_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=f"a.json: {words}.*; make it again") as caught:
        read_json(tmp_path / "a.json", Whole, "make it again")
    assert len(str(caught.value)) < 500 + len(str(tmp_path))


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"[" * 11)
    for name, words in {
        "pipe": "not a plain file",
        "zero": "not a plain file",
        ".": "not a plain file",
        "large": "larger than 10 bytes",
        "missing": "cannot read: No such file",
    }.items():
        with pytest.raises(InputError, match=words):
            read_json(tmp_path / name, Whole, "make it again", limit=10)


PROGRAM = """
import os, sys
from deepsiam.data_prep.common import streams
streams.set_up(lossy=True)
for line in range(3):
    print("Fluß № \\udce9", line)
    print("progress", file=sys.stderr)
read, write = os.pipe()
assert min(read, write) > 2  # the numbers of the standard streams are taken
sys.exit(7)
"""


def run(redirected: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = f'exec "{sys.executable}" -c "$PROGRAM" {redirected}'
    return subprocess.run(
        ["sh", "-c", command], env={**os.environ, "PROGRAM": PROGRAM} | variables, capture_output=True
    )


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("utf-8:strict", "Fluß № ".encode() + b"\xe9"),  # a file's name may be any bytes
        ("ascii", rb"Flu\xdf \u2116 " + b"\xe9"),
        ("latin-1", b"Flu\xdf " + rb"\u2116 " + b"\xe9"),
    ],
)
def test_any_text_can_be_printed_in_any_encoding(encoding: str, printed: bytes) -> None:
    ended = run("", PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (7, printed + b" 0")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirected", "said"),
    [
        (">/dev/full", b"stdout: No space left on device: its lines are lost, the work goes on"),
        ("| true", b""),  # the program may be quicker
        (">&-", b"progress"),
        ("<&- >&- 2>&-", b""),
        (">/dev/full 2>&1", b""),
    ],
)
def test_a_log_that_cannot_be_written_ends_nothing(redirected: str, said: bytes, unbuffered: str) -> None:
    ended = run(redirected, PYTHONUNBUFFERED=unbuffered)
    assert ended.returncode == (0 if redirected == "| true" else 7)
    assert said in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.stderr.count(b"stdout") <= 1
