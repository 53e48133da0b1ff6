import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common import files
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_folder


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


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(InputError, match="a: cannot write: No space left on device"),
        files.whole_file(tmp_path / "a") as file,
    ):
        file.write(b"x")
    assert os.listdir(tmp_path) == []


def test_a_folder_whose_names_cannot_be_synced_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    with files.whole_file(tmp_path / "a") as file:
        file.write(b"1")
    assert (tmp_path / "a").read_bytes() == b"1"
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EINVAL, "Invalid argument")))
    with pytest.raises(InputError, match="a: cannot write: Invalid argument"), files.whole_file(tmp_path / "a"):
        pass


def test_missing_and_misplaced_paths_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="nothing: cannot read: No such file"):
        files.read_bytes(tmp_path / "nothing")
    with pytest.raises(InputError, match="nothing: cannot read"):
        files.sha256_of(tmp_path / "nothing")
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
def test_a_folder_that_is_always_there_is_refused_as_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
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
