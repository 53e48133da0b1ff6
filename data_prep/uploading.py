"""A prepared data set put at a URL: every file of it, each manifest after the shards it vouches for."""

import time
from pathlib import Path

import fsspec

from data_prep import dataset, manifest, remote
from data_prep.errors import InputError
from data_prep.progress import track
from data_prep.remote import TransferError

SCHEME = "s3"


def is_wanted(out: str) -> bool:
    """Whether a data set is to be put at an address, once it is made."""
    return out.startswith(f"{SCHEME}://")


def check(url: str) -> None:
    """Raises InputError for an address that nothing can be put at."""
    if not remote.is_remote(url) or not is_wanted(url):
        raise InputError(f"{remote.without_password(url)}: cannot be written to; use a path or {SCHEME}://")


def upload(out: Path, url: str) -> None:
    """Puts the data set OUT at `url`; files that are there already, of the same size, are left as they are.

    Raises:
        InputError: the package that speaks S3 is not installed, or a file was refused for good.
    """
    try:
        system = fsspec.filesystem(SCHEME, skip_instance_cache=True)
    except ImportError as error:
        raise InputError("s3:// needs a package that is not installed; run: pip install 'deepsiam[remote]'") from error
    files = [path for split in dataset.splits_of(out) for path in (out / split).iterdir()]
    files += [out / dataset.PAIRS] if (out / dataset.PAIRS).exists() else []
    for path in track(sorted(files, key=lambda path: (path.name == manifest.NAME, path)), "upload", "files"):
        _put(system, path, f"{url.rstrip('/')}/{path.relative_to(out).as_posix()}")


def _put(system: fsspec.AbstractFileSystem, path: Path, url: str) -> None:
    def attempt() -> None:
        try:
            if path.name != manifest.NAME and _size(system, url) == path.stat().st_size:
                return
            system.put_file(str(path), url)
        except Exception as error:  # every file system of fsspec has exceptions of its own
            final = isinstance(error, (PermissionError, FileNotFoundError, NotADirectoryError))
            raise TransferError(" ".join(str(error).split()) or type(error).__name__, final) from error

    remote.keep_trying(url, attempt, time.sleep)


def _size(system: fsspec.AbstractFileSystem, url: str) -> int | None:
    """The bytes of what is at a URL; None where nothing is."""
    system.invalidate_cache()
    try:
        return system.info(url)["size"]
    except FileNotFoundError:
        return None
