"""Upload a prepared data set: every file, each manifest after the shards that it lists."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.common.urls import TransferError
from deepsiam.data_prep.prepare import output
from deepsiam.data_prep.shards import manifest
from deepsiam.data_prep.sources import cleaned

if TYPE_CHECKING:  # as in urls
    import fsspec

SCHEME = "s3"
SHA256 = "sha256"  # the metadata of an object


def is_wanted(out: str) -> bool:
    """Return whether an --out is an address to upload a finished data set to."""
    return out.startswith(f"{SCHEME}://")


def check(url: str) -> None:
    """Raise InputError for an address that cannot be written to."""
    if not urls.is_remote(url) or not is_wanted(url):
        raise InputError(f"{urls.without_secrets(url)}: cannot be written to; use a path or {SCHEME}://")


def upload(out: Path, url: str) -> None:
    """Upload the data set OUT to `url`; files that were uploaded there before with the same SHA-256 are skipped."""
    require("remote", "s3fs", feature=f"{SCHEME}://")
    import fsspec

    system = fsspec.filesystem(SCHEME, skip_instance_cache=True)
    folders = [out / name for name in (*output.SPLITS, cleaned.FOLDER) if (out / name).exists()]
    files = [path for folder in folders for path in folder.iterdir()]
    files += [out / output.BANDS] if (out / output.BANDS).exists() else []
    for path in track(
        sorted(files, key=lambda path: (path.name in (manifest.NAME, cleaned.NAME), path)), "upload", "files"
    ):
        _put(system, path, f"{url.rstrip('/')}/{path.relative_to(out).as_posix()}")


def _put(system: fsspec.AbstractFileSystem, path: Path, url: str) -> None:
    digest = sha256_of(path)

    def attempt() -> None:
        try:
            if _sha256(system, url) != digest:
                system.put_file(str(path), url, Metadata={SHA256: digest})
        except Exception as error:  # each of fsspec's file systems has its own exceptions
            final = isinstance(error, (PermissionError, FileNotFoundError, NotADirectoryError))
            raise TransferError(" ".join(str(error).split()) or type(error).__name__, final) from error

    urls.keep_trying(url, attempt, time.sleep)


def _sha256(system: fsspec.AbstractFileSystem, url: str) -> str | None:
    """Return what an upload noted of the file at a URL; None where no file exists, or another program put it there."""
    try:
        return system.metadata(url).get(SHA256)
    except FileNotFoundError:
        return None
