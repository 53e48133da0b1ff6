"""A folder of downloaded shards with a bound on their total size, shared by processes.

A file's name contains the SHA-256 of its content, so all URLs and manifests with this shard share the file, and a
changed shard is a new file. Processes coordinate by flock alone, and locks end with their process:

- `.lock`, exclusive: held briefly while files are searched, removed or renamed;
- `NAME.partial`, exclusive: being downloaded. It has its full size from the beginning, so that it is counted;
- `NAME`, shared: in use. Only a file that no process uses is removed, the least recently used first.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deepsiam.data_prep.common.errors import CacheError
from deepsiam.data_prep.common.files import PARTIAL, make_directory, os_errors_as_input_errors, sha256_of, sync
from deepsiam.data_prep.shards.manifest import ShardEntry

CACHE_FILE = re.compile(rf".+-[0-9a-f]{{64}}\.tar({re.escape(PARTIAL)})?")  # others are neither counted nor removed
POLL = 0.1  # seconds between two attempts to make room
PATIENCE = 50  # attempts while no download is running: another process may soon release a shard


class Store:
    """The shards in `directory`: at most `limit` bytes, running downloads counted in full."""

    def __init__(self, directory: Path, limit: int, sleep: Callable[[float], None] = time.sleep):
        self.directory, self.limit, self.sleep = Path(directory), limit, sleep
        self._verified: dict[Path, tuple[int, int]] = {}  # inode and time of files whose hash was right
        make_directory(self.directory)

    def path(self, entry: ShardEntry) -> Path:
        """Return the path of a shard, downloaded or not."""
        return self.directory / f"{Path(entry.name).stem}-{entry.sha256}.tar"

    def hold(self, entry: ShardEntry, fill: Callable[[BinaryIO], None], wait: bool = True) -> BinaryIO | None:
        """Return a shard's file, verified and in use until `let_go`; if it is missing or damaged, `fill` writes it.

        `fill` must write exactly the content that `entry` describes, or raise. Without `wait`, return None while
        another process or thread downloads it or no room can be made.
        """
        path = self.path(entry)
        with os_errors_as_input_errors(path, "keep in the cache", CacheError):
            while True:
                file = self._find(path)
                if file is None:
                    file = self._make(path, entry.bytes, fill, wait)
                elif not self._is_good(path, file, entry.sha256):
                    self._discard(path, file)
                    continue
                if file is not None or not wait:
                    return file

    def let_go(self, file: BinaryIO) -> None:
        """End the use of a file that `hold` returned."""
        _stamp(file)
        unlock(file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes and threads from adding and removing files; hold it only briefly."""
        with _open(self.directory / ".lock", os.O_CREAT) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                unlock(file)

    def _find(self, path: Path) -> BinaryIO | None:
        with self.locked():
            _unlink_links(path)
            if not path.exists():
                return None
            file = _open(path)
            fcntl.flock(file, fcntl.LOCK_SH)  # at once: exclusive locks on finished files are held only in `locked`
            _stamp(file)
            return file

    def _is_good(self, path: Path, file: BinaryIO, sha256: str) -> bool:
        if self._verified.get(path) != _identity(file):
            if sha256_of(path) != sha256:
                return False
            self._verified[path] = _identity(file)
        return True

    def _discard(self, path: Path, file: BinaryIO) -> None:
        with self.locked():
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                path.unlink()
        unlock(file)

    def _make(self, path: Path, size: int, fill: Callable[[BinaryIO], None], wait: bool) -> BinaryIO | None:
        """Return the filled file; None if another process made it or, without `wait`, is making it or uses the room."""
        partial = path.with_name(path.name + PARTIAL)
        file = self._reserve(path, partial, size, wait)
        if file is None:
            return None
        try:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            with self.locked():
                os.replace(partial, path)
                sync(self.directory)
                _stamp(file)
                self._verified[path] = _identity(file)
                fcntl.flock(file, fcntl.LOCK_SH)
        except BaseException:
            partial.unlink(missing_ok=True)
            unlock(file)
            raise
        return file

    def _reserve(self, path: Path, partial: Path, size: int, wait: bool) -> BinaryIO | None:
        """Return `partial`, locked and of its full size, once it fits; None as for `_make`."""
        attempts = 0
        while True:
            with self.locked():
                if path.exists():
                    return None
                _unlink_links(partial)
                file = _open(partial, os.O_CREAT)
                is_locked = _lock_unless_held(file)
                if is_locked:
                    file.truncate(0)
                    shortage, downloading = self._make_room(size, partial)
                    if shortage <= 0:
                        file.truncate(size)
                        return file
                    partial.unlink()
                    unlock(file)
            if not wait:
                file.close()
                return None
            if not is_locked:
                fcntl.flock(file, fcntl.LOCK_SH)  # waits until the downloading process has succeeded or failed
                unlock(file)
                return None
            attempts = 0 if downloading else attempts + 1
            if attempts > PATIENCE:
                raise CacheError(
                    f"data.cache_bytes: {self.limit} bytes cannot hold the shards that are open at once; "
                    f"set at least {self.limit + shortage}"
                )
            self.sleep(POLL)

    def _make_room(self, size: int, own_file: Path) -> tuple[int, bool]:
        """Remove idle shards until `size` more bytes fit, or none if removing all is not enough.

        Unfinished downloads of dead processes are removed first. Return the bytes that are still missing, and
        whether other downloads are running.
        """
        used_bytes, downloading, complete_files = 0, False, []
        for item in list(os.scandir(self.directory)):
            path = Path(item.path)
            if not CACHE_FILE.fullmatch(item.name) or item.is_symlink() or path == own_file:
                continue
            if item.name.endswith(PARTIAL):
                with _open(path) as file:
                    if _lock_unless_held(file):
                        path.unlink()
                        continue
                downloading = True
            else:
                complete_files.append((item.stat().st_atime_ns, path, item.stat().st_size))
            used_bytes += item.stat().st_size
        shortage = used_bytes + size - self.limit
        victims = []
        for _, path, freed in sorted(complete_files):
            if shortage <= 0:
                break
            file = _open(path)
            if _lock_unless_held(file):
                victims.append((path, file))
                shortage -= freed
            else:
                file.close()
        for path, file in victims:
            if shortage <= 0:
                path.unlink()
            unlock(file)
        return shortage, downloading


def unlock(file: BinaryIO) -> None:
    """Unlock and close; closing alone would leave the lock with a process forked meanwhile."""
    fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


def _unlink_links(path: Path) -> None:
    """Remove a link, symbolic or hard, that another user put under the name of a shard to have its target written."""
    if path.is_symlink() or (path.exists() and path.stat().st_nlink > 1):
        path.unlink()


def _open(path: Path, flags: int = 0) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o644), "r+b")


def _lock_unless_held(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stamp(file: BinaryIO) -> None:
    """Set the time of access, which orders shards by last use; a file system may not update it."""
    os.utime(file.fileno(), ns=(time.time_ns(), os.fstat(file.fileno()).st_mtime_ns))


def _identity(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_mtime_ns
