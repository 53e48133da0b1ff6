"""The Hugging Face Hub: addresses, what they name in the hub's cache, and uploads.

hf://OWNER/NAME[@REVISION]                     a model
hf://datasets/OWNER/NAME[@REVISION]/PATTERN    files of a data set, such as hf://datasets/OWNER/NAME/**/*.parquet

Only files of the patterns that a caller allows are downloaded, into the cache of huggingface_hub, which reads HF_HOME,
HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE. It is imported where it is used: only addresses need it, and it takes .3 s.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from deepsiam.data_prep.common.errors import OF_DISKS, OF_PATHS, InputError, as_input_error

SCHEME = "hf:/"  # a Path has one slash
MODEL_FILES = ("*.json", "*.txt", "*.safetensors")  # no code, and nothing that can run code
TOKENIZER_FILES = MODEL_FILES[:2]
_NAME = r"[\w.-]+/[\w.-]+"
_MODEL = re.compile(rf"hf:/{{1,2}}(?!datasets/)(?P<name>{_NAME}|[\w.-]+)(@(?P<revision>.+))?")
_DATASET = re.compile(rf"hf:/{{1,2}}datasets/(?P<name>{_NAME})(@(?P<revision>[^/]+))?/+(?P<pattern>[^/].*)")
_CACHED_DATASET = re.compile(r"/datasets--([\w.-]+?)--([\w.-]+)/snapshots/")
_COMMIT = re.compile("[0-9a-f]{40}")


class Model(NamedTuple):
    """A model of the hub; no revision: its main branch."""

    name: str
    revision: str | None

    def __str__(self) -> str:
        return f"hf://{self.name}" + (f"@{self.revision}" if self.revision else "")


def is_address(location: str | Path) -> bool:
    """Return whether a location is an address of the hub."""
    return str(location).startswith(SCHEME)


def parse_model(location: str | Path) -> Model:
    """Return the model that an address names; raise InputError for any other one."""
    if not (match := _MODEL.fullmatch(str(location))):
        address = "hf://" + str(location).removeprefix(SCHEME).removeprefix("/")
        raise InputError(f"{address}: not an address of a model: write hf://OWNER/NAME, or hf://OWNER/NAME@REVISION")
    return Model(match["name"], match["revision"])


def local_model(location: str | Path, allowed: Sequence[str] = MODEL_FILES) -> Path:
    """Return a model's folder: of an address the one in the hub's cache, which its commit names; else the path itself.

    What the cache lacks of the `allowed` files is downloaded. Raise InputError where that fails.
    """
    if not is_address(location):
        return Path(location)
    model = parse_model(location)
    return _snapshot(str(model), model.name, model.revision, "model", allowed)


def local_files(location: str) -> list[str]:
    """Return the files of an address of a data set, in the hub's cache, sorted; any other location as it is.

    Raise InputError where no file matches, or the download fails.
    """
    if not is_address(location):
        return [location]
    if not (match := _DATASET.fullmatch(location)):
        raise InputError(f"{location}: not an address of files: write hf://datasets/OWNER/NAME/**/*.parquet, or others")
    pattern, revision = match["pattern"], match["revision"] and unquote(match["revision"])
    # the hub's * also matches a slash, but its **/ needs one; `glob` has the last word
    folder = _snapshot(location, match["name"], revision, "dataset", [pattern, pattern.replace("**/", "")])
    with as_input_error(location):  # `**` must be a whole part of the path
        files = sorted(str(path) for path in folder.glob(pattern) if path.is_file())
    if not files:
        raise InputError(f"{location}: no file matches {pattern}: see which files the data set has")
    return files


def with_commit(location: Path | str, folder: Path) -> Path | str:
    """Return the address whose folder `local_model` has found, with the commit as revision; any other path as it is."""
    return str(parse_model(location)._replace(revision=folder.name)) if is_address(location) else location


def continues(saved: Path | str, location: Path | str) -> bool:
    """Return whether a run that started `saved`, an address with its commit, may go on where its recipe has another."""
    if not (is_address(saved) and is_address(location)):
        return False
    model, saved_model = parse_model(location), parse_model(saved)
    return model.name == saved_model.name and not _COMMIT.fullmatch(model.revision or "")


def dataset_of(path: Path | str) -> str | None:
    """Return the name of the data set that a file of the hub's cache belongs to; None for other paths."""
    match = _CACHED_DATASET.search(str(path))
    return f"{match[1]}/{match[2]}" if match else None


def require_repository(name: str) -> str:
    """Return the name of a repository to upload to; raise InputError where it is none."""
    if not re.fullmatch(_NAME, name):
        raise InputError(f"--push {name}: not the name of a repository: write OWNER/NAME")
    return name


def push(folder: Path, name: str, *, private: bool) -> str:
    """Upload a folder's files to the repository of a model, which is made if it is new; return its address.

    Raises:
        InputError: the hub refuses, or cannot be reached.
    """
    from huggingface_hub import HfApi

    with _one_line_for_errors(f"hf://{name}"):
        api = HfApi()
        api.create_repo(name, private=private or None, exist_ok=True)  # None: as the owner has set
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload an export of deepsiam")
    return f"hf://{name}"


def _snapshot(address: str, name: str, revision: str | None, kind: str, allowed: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    with _one_line_for_errors(address):
        return Path(snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=[*allowed]))


@contextmanager
def _one_line_for_errors(address: str) -> Iterator[None]:
    """Raise InputError where the hub does not do what the block asks; no progress bars but on a terminal."""
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield
    except Exception as error:  # its errors, and those of its HTTP client, have no common class
        from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled

        causes: list[BaseException] = [error]
        while cause := causes[-1].__cause__ or causes[-1].__context__:
            causes.append(cause)
        status = next((r.status_code for cause in causes if (r := getattr(cause, "response", None)) is not None), None)
        if any(isinstance(cause, OfflineModeIsEnabled) for cause in causes):
            problem = "is not in the hub's cache, and HF_HUB_OFFLINE is set: unset it, or copy the cache here"
        elif status in (401, 403):
            problem = (
                f"the hub refuses access (HTTP status {status}): check the name; for a private or gated repository log "
                "in by `hf auth login`, or set HF_TOKEN"
            )
        elif status == 404:
            problem = "the hub has no such repository or revision (HTTP status 404): check the name"
        elif isinstance(error, HFValidationError):
            problem = f"the hub has no such names ({error!s:.200})"
        elif full := [c for c in causes if isinstance(c, OSError) and c.errno in (*OF_DISKS, *OF_PATHS)]:
            problem = f"cannot write to the hub's cache ({full[-1].strerror}): make room, or name another HF_HOME"
        elif status:
            problem = f"the hub answers with HTTP status {status}: try again later"
        else:
            problem = f"no answer of a hub ({causes[-1]!s:.200}): check the network and HF_ENDPOINT"
        raise InputError(f"{address}: {problem}") from error
