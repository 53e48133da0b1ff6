"""Files and folders that are either complete or absent: temporary name, fsync, os.replace."""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from deepsiam.data_prep.common.errors import InputError, StoppedError

PARTIAL = ".partial"  # the ending of every temporary name
LARGEST_JSON = 1 << 25  # bytes of a manifest.json (100,000 shards) or a tokenizer.json (a million tokens)


@contextmanager
def os_errors_as_input_errors(path: Path, action: str, kind: type[StoppedError] = StoppedError) -> Iterator[None]:
    """Turn an OSError (disk full, no permission, missing file) into a StoppedError, an InputError of one clear line."""
    try:
        yield
    except OSError as error:
        raise kind(f"{path}: cannot {action}: {error.strerror or error}") from error


def refuse_folder(path: Path) -> None:
    """Raise InputError if `path` is a folder: no file can be written there."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder: name a file, in it or elsewhere")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new binary file that takes the name `path` only when the block has ended well and the file is on disk.

    Raises:
        InputError: the file cannot be written, or `path` is a folder or a device; neither the file nor a temporary one
            is left.
    """
    refuse_folder(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no plain file, which could be replaced: name another one")
    target = Path(os.path.realpath(path))  # of a link, what it points to
    partial = target.with_name(target.name + PARTIAL)
    with os_errors_as_input_errors(path, "write"):
        try:
            with open_new(partial) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync(target.parent)


def open_new(path: Path, buffering: int = -1) -> BinaryIO:
    """Return a new binary file in place of what is at `path`: opening that would follow a link that others put there.

    Raises:
        OSError: the file cannot be written; the error names it.
    """
    path.unlink(missing_ok=True)
    return open(path, "xb", buffering)  # x: it fails where a link has come back since


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, as a `whole_file`."""
    with whole_file(path) as file:
        file.write(content)


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an .npy file, as a `whole_file`."""
    with whole_file(path) as file:
        np.save(file, array)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that takes the name `path` only when the block has ended well and its files are on disk.

    It replaces the folder at `path`, if any; when the block raises, that folder stays as it was.
    """
    require_name(path)
    partial = path.with_name(path.name + PARTIAL)
    with os_errors_as_input_errors(path, "write"):
        remove(partial)
        try:
            partial.mkdir(parents=True)
            yield partial
            for file in partial.rglob("*"):
                if file.is_file():
                    sync(file)
            replace_folder(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def require_name(path: Path) -> None:
    """Raise InputError for `.`, `..` and `/`, in whose place no new folder can be put."""
    if path.name in ("", ".."):
        raise InputError(f"{path}: is the name of no new folder: name one, such as {path / 'made'}")


def replace_folder(new_folder: Path, path: Path) -> None:
    """Give `new_folder` the name `path` in place of a folder with that name; raise OSError if that fails.

    Between two renames `path` does not exist; the old folder is at `path`.old.partial until the new one is in place.
    """
    old_folder = path.with_name(f"{path.name}.old{PARTIAL}")
    remove(old_folder)
    if path.exists():
        os.replace(path, old_folder)
    os.replace(new_folder, path)
    sync(path.parent)
    shutil.rmtree(old_folder, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a folder with what is in it, or the file or link that has its name; raise OSError if that fails."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def undo_replace(folder: Path) -> None:
    """Give what a kill between the renames of `replace_folder` left without its name in a folder that name again."""
    for old_folder in folder.glob(f"*.old{PARTIAL}"):
        path = old_folder.with_name(old_folder.name.removesuffix(f".old{PARTIAL}"))
        if not path.exists():
            os.replace(old_folder, path)


def lock(path: Path, held: str) -> BinaryIO:
    """Return the file at `path`, locked by this process until it is closed or the process ends.

    Raises:
        InputError: another process holds the lock (the message is `held`), or the file cannot be written or locked.
    """
    with os_errors_as_input_errors(path, "write"):
        file = open(path, "ab", opener=_without_link)  # noqa: SIM115 (the caller closes it)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: child processes would inherit it
    except OSError as error:
        file.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise InputError(held) from None
        raise InputError(
            f"{path}: cannot be locked ({error.strerror}): use a file system with locks, or mount it with them"
        ) from None
    return file


def _without_link(path: str, flags: int) -> int:
    """Open a file as `open` does, but no link, and no pipe, for whose reader it would wait."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # shared folders of VirtualBox and WSL, and old CIFS, cannot sync the names in a folder, and need not
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def in_a_folder(path: Path) -> None:
    """Raise InputError if the folder of a file that will be written later does not exist."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: its folder does not exist; create it")


def make_directory(directory: Path) -> None:
    """Create `directory` and its parents; refuse a link under a temporary name, which others may have put there."""
    for folder in (directory, *directory.parents):
        if folder.name.endswith(PARTIAL) and folder.is_symlink():
            raise InputError(f"{folder}: is a link under a temporary name: remove it")
    with os_errors_as_input_errors(directory, "create this folder"):
        directory.mkdir(parents=True, exist_ok=True)


def read_bytes(path: Path, limit: int = LARGEST_JSON) -> bytes:
    """Return a whole small file; raise InputError if it cannot be read, is not a plain file, or has more bytes."""
    require_plain_file(path)
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{path}: larger than {limit:,} bytes, the limit for such a file")
    return content


def require_plain_file(path: Path) -> None:
    """Raise InputError for what reading could wait for, or never end: a pipe, a device, a folder."""
    with os_errors_as_input_errors(path, "read"):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: not a plain file; name one, or put one there")


def require_once(paths: Iterable[Path]) -> None:
    """Raise InputError where a path is there twice: its texts would count twice, or be of two splits."""
    for path, number in Counter(paths).items():
        if number > 1:
            raise InputError(f"{path}: is named twice; name every file once")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hex; raise InputError if the file cannot be read."""
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file; raise InputError if it cannot be read, whatever else happens to its reader."""
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        while block := file.read(1 << 20):
            yield block
