"""Files that are either whole or not there: temporary name, fsync, os.replace."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from data_prep.errors import InputError

PARTIAL = ".partial"  # the ending of every temporary name
LARGEST_JSON = 1 << 25  # bytes of a manifest.json (100,000 shards) or a tokenizer.json (a million tokens)


@contextmanager
def os_errors_as_input_errors(path: Path, action: str) -> Iterator[None]:
    """Turns what the operating system refuses (disk full, no permission, not there) into one clear line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot {action}: {error.strerror or error}") from error


def refuse_folder(path: Path) -> None:
    """Raises InputError where no file can be written at `path`, as a folder is there."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder: name a file, in it or elsewhere")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yields a binary file that takes the name `path` only when the block has ended well and is on disk.

    Raises:
        InputError: the operating system refused, or `path` is a folder; neither it nor a temporary file is left behind.
    """
    refuse_folder(path)
    partial = path.with_name(path.name + PARTIAL)
    with os_errors_as_input_errors(path, "write"):
        try:
            with open(partial, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def lock(path: Path, held: str) -> BinaryIO:
    """The file at `path`, locked by this process until it is closed or the process ends.

    Raises:
        InputError: saying `held`, where another process has it; or the operating system refused.
    """
    with os_errors_as_input_errors(path, "write"):
        file = open(path, "ab")  # noqa: SIM115 (it is handed on)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: child processes would inherit it
    except OSError:
        file.close()
        raise InputError(held) from None
    return file


def sync_directory(directory: Path) -> None:
    """Makes the names in `directory` as durable as the files they name."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Creates `directory` and its parents; InputError where that cannot be done or one of them is a file."""
    with os_errors_as_input_errors(directory, "create this folder"):
        directory.mkdir(parents=True, exist_ok=True)


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The whole file; InputError where it cannot be read, or has more than `most` bytes (-1: any number)."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a plain file; remove it")
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        content = file.read(most + 1 if most >= 0 else -1)
    if 0 <= most < len(content):
        raise InputError(f"{path}: more than the {most:,} bytes that are read of such a file")
    return content


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex; InputError where it cannot be read."""
    digest = hashlib.sha256()
    with os_errors_as_input_errors(path, "read"), open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
