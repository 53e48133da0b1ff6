"""Files and folders are complete or absent; JSON has types and bounds; any text can be printed."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
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
    with pytest.raises(TypeError), files.whole_file(path) as file:
        file.write("text")  # type: ignore[call-overload]
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]
    with files.whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]
    assert files.sha256_of(path) == hashlib.sha256(b"new").hexdigest()


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


def test_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with files.whole_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert not list(tmp_path.glob("*.partial"))


def write_file(path: Path) -> None:
    with files.whole_file(path):
        pass


def write_folder(path: Path) -> None:
    with files.whole_folder(path):
        pass


NO_NEW = "is the name of no new folder: name one, such as"


@pytest.mark.parametrize(
    ("use", "path", "said"),
    [
        (files.read_bytes, "nothing", "^nothing: cannot read: No such file"),
        (files.sha256_of, "nothing", "^nothing: cannot read"),
        (files.make_directory, "file/sub", "^file/sub: cannot create this folder: Not a directory"),
        (write_file, "no/a", "^no/a: cannot write"),
        *((write_file, name, "is a folder: name a file") for name in (".", "..")),
        *((write_file, name, "is no plain file") for name in ("pipe", "/dev/null")),
        *((write_folder, name, NO_NEW) for name in (".", "..", "sub/..", "/")),
    ],
)
def test_what_cannot_be_used_is_named_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], object], path: str, said: str
) -> None:
    here = tmp_path / "here"
    files.make_directory(here / "sub")
    (here / "file").write_text("")
    os.mkfifo(here / "pipe")
    monkeypatch.chdir(here)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=said):
        use(Path(path))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["symbolic", "hard", "pipe"])
@pytest.mark.parametrize("write", [files.whole_file, files.whole_folder, files.open_new])
def test_a_link_under_a_temporary_name_is_replaced(tmp_path: Path, write: Any, kind: str) -> None:
    """As another user puts there, to a file that is not theirs."""
    temporary = tmp_path / ("a" if write is files.open_new else "a.partial")
    (tmp_path / "precious").write_text("precious")
    if kind == "pipe":
        os.mkfifo(temporary)
    else:
        (temporary.hardlink_to if kind == "hard" else temporary.symlink_to)(tmp_path / "precious")
    with write(tmp_path / "a") as written:
        (written / "file").write_text("new") if isinstance(written, Path) else written.write(b"new")
    assert (tmp_path / "precious").read_text() == "precious"
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


def test_a_kill_between_the_renames_is_undone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("old")
    with pytest.raises(OSError, match="No such file"):  # the second rename fails: the same as a kill before it
        files.replace_folder(tmp_path / "nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        files.undo_replace(tmp_path)
        assert (tmp_path / "out" / "file").read_text() == "old"
    (tmp_path / "out.old.partial").mkdir()  # killed before it was removed
    files.undo_replace(tmp_path)
    assert (tmp_path / "out" / "file").read_text() == "old"


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
        ('{"count": true}', "count: input should be a valid integer"),
        ('{"count": -1}', "count: input should be greater than or equal to 0"),
        ('{"count": 281474976710656}', "count: input should be less than 281474976710656"),
        ('{"count": 1%s}' % ("0" * 5000), "not its kind of JSON .*number out of range"),
        ('{"count": 7, "share": NaN}', "share: input should be a finite number"),
        ('{"count": 7, "parts": {"../a": ' + PART + "}}", r"parts.*: string should match pattern"),
        ('{"count": 7, "parts": {"a": {"name": "..", "sha256": ""}}}', "parts.a.name: string should match pattern"),
        ('{"count": 7, "free": %s}' % ('{"a":' * 5000), "not its kind of JSON .*recursion limit"),
        ('{"count": 7, "free": {"a": "\\ud800"}}', "not its kind of JSON"),
        ("[" * 100_000, "not its kind of JSON .*recursion limit"),
        ("\x00", "not its kind of JSON"),
    ],
    ids=lambda value: value[:40],
)
def test_every_damage_is_one_line_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=f"a.json: {words}.*; make it again") as caught:
        read_json(tmp_path / "a.json", Whole, "make it again")
    assert len(str(caught.value)) < 500 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((name, "not a plain file") for name in ("pipe", "zero", ".")),
        ("large", "larger than 10 bytes"),
        ("missing", "cannot read: No such file"),
    ],
)
def test_what_has_no_end_is_not_read(tmp_path: Path, name: str, said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"[" * 11)
    with pytest.raises(InputError, match=said):
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
    words = ["sh", "-c", f'exec "{sys.executable}" -c "$PROGRAM" {redirected}']
    return subprocess.run(words, env={**os.environ, "PROGRAM": PROGRAM} | variables, capture_output=True)


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


@pytest.mark.parametrize(
    ("redirected", "unbuffered", "said"),
    [
        (">/dev/full", "", b"stdout: No space left on device: its lines are lost, the work goes on"),
        (">/dev/full", "1", b"stdout: No space left on device: its lines are lost, the work goes on"),
        ("| true", "1", b""),  # the program may be quicker
        (">&-", "", b"progress"),
        ("<&- >&- 2>&-", "1", b""),
        (">/dev/full 2>&1", "", b""),
    ],
)
def test_a_log_that_cannot_be_written_ends_nothing(redirected: str, unbuffered: str, said: bytes) -> None:
    ended = run(redirected, PYTHONUNBUFFERED=unbuffered)
    assert ended.returncode == (0 if redirected == "| true" else 7)
    assert said in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.stderr.count(b"stdout") <= 1
