"""The files that a run reads: local ones as they lie, remote ones downloaded first; and what is recorded of them."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from data_prep import remote
from data_prep.files import make_directory, os_errors_as_input_errors, sha256_of, whole_file
from data_prep.progress import track
from data_prep.source import File

MOST_LISTED = 10_000  # files that a manifest lists one by one


def local(locations: Sequence[str], folder: Path) -> list[Path]:
    """The paths, those of URLs after they have been downloaded to `folder`, where each stays until it is removed.

    Raises:
        InputError: a file cannot be had, or its address is not one that is read from.
    """
    paths = places(locations, folder)
    for location, path in zip(locations, paths, strict=True):
        if remote.is_remote(location) and not path.exists():
            _download(location, path)
    return paths


def places(locations: Sequence[str], folder: Path) -> list[Path]:
    """The paths, those of URLs where they would be downloaded to, in `folder`; InputError for another address."""
    return [_place(location, folder) if remote.is_remote(location) else Path(location) for location in locations]


def _place(url: str, folder: Path) -> Path:
    # a folder of its own, so that the file keeps its name, which ids are made of
    return folder / hashlib.sha256(url.encode()).hexdigest()[:16] / Path(urlsplit(url).path).name


def _download(url: str, path: Path) -> None:
    make_directory(path.parent)
    print(f"downloading {remote.without_password(url)}", flush=True)

    def attempt() -> None:
        with whole_file(path) as file:

            def receive(block: bytes) -> None:
                file.write(block)

            remote.read(url, 1 << 62, receive)

    remote.keep_trying(url, attempt, time.sleep)


def listed(files: Sequence[File]) -> list[dict[str, Any]]:
    """Name and size of every file."""
    records = []
    for file in files:
        with os_errors_as_input_errors(file.path, "read"):
            records.append({"name": file.name, "bytes": file.path.stat().st_size})
    return records


def same(source: Mapping[str, Any], files: Sequence[File], folder: Path) -> bool:
    """Whether a data set was made of files of these names and sizes, as far as its manifest lists them.

    Those that would be downloaded to `folder` are known by their names alone.
    """
    made = source.get("inputs", {})
    sizes = {
        item["name"]: item["bytes"] for item in listed([file for file in files if folder not in file.path.parents])
    }
    if made.get("number") != len(files):
        return False
    if not made["files"]:  # too many to be listed
        return len(sizes) < len(files) or sum(sizes.values()) == made["bytes"]
    return all(
        (item["name"], item["bytes"]) == (file.name, sizes.get(file.name, item["bytes"]))
        for item, file in zip(made["files"], files, strict=True)
    )


def record(files: Sequence[File]) -> dict[str, Any]:
    """What a manifest says of the input: every file with its hash, or, where they are very many, all in one hash."""
    hashed = [
        {**item, "sha256": sha256_of(file.path)}
        for item, file in zip(listed(files), track(files, "hash", "files"), strict=True)
    ]
    digest = hashlib.sha256(json.dumps(hashed).encode()).hexdigest()
    return {
        "number": len(hashed),
        "bytes": sum(item["bytes"] for item in hashed),
        "sha256": digest,
        "files": hashed if len(hashed) <= MOST_LISTED else [],
    }
