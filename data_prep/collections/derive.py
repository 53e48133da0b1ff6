"""Derive a collection from another: the same texts, but new candidates or scores in one split. Mining uses it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.collections.collection import MANIFEST, SPLITS, TOKENIZER, Collection, input_record
from data_prep.common.errors import InputError
from data_prep.common.files import make_directory, os_errors_as_input_errors, read_bytes, sha256_of, whole_folder

DERIVED = "derived"  # the key of the manifest


class NewCandidates(NamedTuple):
    """The candidates of a split's groups; the queries and the number of groups are those of the original."""

    ends: np.ndarray  # int64 [groups]
    documents: np.ndarray  # int64 [candidates]
    labels: np.ndarray  # fp32 [candidates]
    found_by: np.ndarray  # uint8 [candidates]
    found_scores: np.ndarray  # fp32 [candidates]
    scores: np.ndarray | None = None  # fp32 [candidates]: a teacher's


def derive(
    source: Collection, out: Path, split: str, candidates: NewCandidates, about: Mapping[str, Any], mined: list[str]
) -> Collection:
    """Make and open the collection `out`: a copy of `source` with other candidates in one split.

    The unchanged files are hard links to those of `source`, which nothing writes to; on another file system, copies.

    Args:
        about: what made the collection, for the manifest.
        mined: the systems that `found_by` numbers, from 1.

    Raises:
        InputError: `out` is the source, or exists and was not mined; a file cannot be written.
    """
    require_room(source, out)
    make_directory(out.parent)
    manifest = {**source.manifest, "command": dict(about), DERIVED: True, "mined": mined}
    own, unlisted = f"{SPLITS}/{split}/", ("unlisted.npy", "unlisted_ends.npy", "unlisted_labels.npy")
    kept = {own + name for name in ("queries.npy", "pool.npy", *unlisted)}
    given = source.manifest["arrays"].items()
    arrays = {name: record for name, record in given if not name.startswith(own) or name in kept}
    with whole_folder(out) as folder:
        for name in arrays:
            _link(source.directory / name, folder / name)
        names = "group_ends", "candidates", "labels", "found_by", "found_scores", "scores"
        for name, array in zip(names, candidates, strict=True):
            if array is None:
                continue
            path = folder / own / f"{name}.npy"
            np.save(path, array)
            arrays[own + path.name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        (folder / TOKENIZER).write_bytes(read_bytes(source.directory / TOKENIZER))
        manifest |= {"arrays": arrays, "inputs": [input_record(source.directory / MANIFEST, out)]}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return Collection.open(out)


def require_room(source: Collection, out: Path) -> None:
    """Raise InputError unless `out` is free, or a collection that `derive` made from another one."""
    if out.resolve() == source.directory.resolve():
        raise InputError(f"{out}: is the collection itself: name another folder")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir() or not (out / MANIFEST).is_file() or not Collection.open(out).manifest.get(DERIVED):
        raise InputError(f"{out}: exists, and was not mined: name another folder")


def _link(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with os_errors_as_input_errors(file, "read"):
        try:
            os.link(file, to)
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(file, to)
