"""The files that a run reads: remote ones are downloaded first; the manifest records names, sizes and hashes."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, os_errors_as_input_errors, sha256_of, whole_file
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.sources.source import File, Source

MOST_LISTED = 10_000  # files that a manifest lists one by one


def local(locations: Sequence[str], folder: Path) -> list[Path]:
    """Return the paths of files; those at URLs are downloaded to `folder`, where they stay until they are removed."""
    paths = local_paths(locations, folder)
    for location, path in zip(locations, paths, strict=True):
        if urls.is_remote(location) and not path.exists():
            _download(location, path)
    return paths


def local_paths(locations: Sequence[str], folder: Path) -> list[Path]:
    """Return the paths; for URLs, the paths of downloads in `folder`. Raise InputError for an unknown scheme."""
    return [_download_path(place, folder) if urls.is_remote(place) else Path(place) for place in locations]


def found(source: Source, paths: Sequence[Path], output_folders: Sequence[Path]) -> list[File]:
    """Return the files of a source in `paths`, but not those in `output_folders`, which the preparation itself writes.

    They are below a folder of `paths` where the output is inside the input.
    """
    files = list(source.find(paths))
    folders = [folder.resolve() for folder in output_folders]
    if not any(path.is_dir() and folders[0].is_relative_to(path.resolve()) for path in paths):
        return files
    return [file for file in files if not any(file.path.resolve().is_relative_to(folder) for folder in folders)]


def _download_path(url: str, folder: Path) -> Path:
    # each in its own folder, so that the file keeps its name, which is a part of ids
    if not (name := Path(urlsplit(url).path).name):
        raise InputError(f"{urls.without_secrets(url)}: names no file: its path ends before one")
    return folder / hashlib.sha256(urls.unsigned(url).encode()).hexdigest()[:16] / name


def _download(url: str, path: Path) -> None:
    make_directory(path.parent)
    print(f"downloading {urls.without_secrets(url)}", flush=True)

    def attempt() -> None:
        with whole_file(path) as file:

            def receive(block: bytes) -> None:
                file.write(block)

            urls.read(url, 1 << 62, receive)

    urls.keep_trying(url, attempt, time.sleep)


def listed(files: Sequence[File]) -> list[dict[str, Any]]:
    """Return the name and size of every file."""
    records = []
    for file in files:
        with os_errors_as_input_errors(file.path, "read"):
            records.append({"name": file.name, "bytes": file.path.stat().st_size})
    return records


def same(source: Mapping[str, Any], files: Sequence[File], folder: Path, manifest_file: Path) -> bool:
    """Return whether a data set was made from files with these names and sizes, as far as its manifest lists them.

    The hashes of files that were written after the data set's `manifest_file` are compared, too. Files that would be
    downloaded to `folder` are compared by name only.
    """
    inputs = source.get("inputs", {})
    sizes = {
        item["name"]: item["bytes"] for item in listed([file for file in files if folder not in file.path.parents])
    }
    if inputs.get("number") != len(files):
        return False
    later = {file.name for file in files if file.name in sizes and _written(file.path) > _written(manifest_file)}
    if not inputs["files"]:  # too many to be listed
        is_local = len(sizes) == len(files)
        return not is_local or (
            sum(sizes.values()) == inputs["bytes"] and (not later or record(files)["sha256"] == inputs["sha256"])
        )
    return all(
        (item["name"], item["bytes"]) == (file.name, sizes.get(file.name, item["bytes"]))
        and (file.name not in later or item["sha256"] == sha256_of(file.path))
        for item, file in zip(inputs["files"], files, strict=True)
    )


def _written(path: Path) -> int:
    """Return when a file was written or put in its place, in nanoseconds: a copy can keep its older time of change."""
    status = path.stat()
    return max(status.st_mtime_ns, status.st_ctime_ns)


def record(files: Sequence[File], hashed: bool = True) -> dict[str, Any]:
    """Return what a manifest records of the input: every file with its hash, or one hash of very many files.

    Without `hashed`, for a trial that reads only the beginning, the files are not read.
    """
    records = [
        {**item, "sha256": sha256_of(file.path) if hashed else None}
        for item, file in zip(listed(files), track(files, "hash", "files"), strict=True)
    ]
    digest = hashlib.sha256(json.dumps(records).encode()).hexdigest()
    return {
        "number": len(records),
        "bytes": sum(item["bytes"] for item in records),
        "sha256": digest,
        "files": records if len(records) <= MOST_LISTED else [],
    }
