"""Find the files of a published data set by their names, in a folder or among files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from data_prep.collections.format import split_and_file
from data_prep.common.errors import InputError
from data_prep.common.files import os_errors_as_input_errors
from data_prep.sources import compressed

SUFFIXES = {suffix for known in compressed.FORMATS for suffix in known.suffixes}


class NamedFile(NamedTuple):
    """A file and its split, given or derived from its name (for a file of texts, the split is not used)."""

    path: Path
    split: str


def named_files(inputs: Sequence[Path], kinds: Mapping[str, str], unsaid: str) -> dict[str, list[NamedFile]]:
    """Return the files of every kind, in the order of the inputs.

    Args:
        inputs: folders, files, or SPLIT=FILE. In a folder, subfolders, dot files and files of no kind are skipped.
        kinds: the regular expression of each kind's names, which matches the whole name in lower case, without .gz and
            the like; the first one that matches is used.
        unsaid: a regular expression of the parts of a file's name that are not in the name of its split.

    Raises:
        InputError: a file is missing or of no kind; a folder has no file of any kind.
    """
    found: dict[str, list[NamedFile]] = {kind: [] for kind in kinds}
    for given in inputs:
        known = 0
        for path, split in _files(given):
            name = _without(SUFFIXES, path.name.lower())
            if kind := next((kind for kind, pattern in kinds.items() if re.fullmatch(pattern, name)), None):
                found[kind].append(NamedFile(path, split or _split_of(name, unsaid)))
                known += 1
        if not known:
            names = "no file in it is named" if given.is_dir() else "it is not named"
            raise InputError(f"{given}: {names} as one of these: {', '.join(kinds)} (a .tar must be unpacked first)")
    return found


def _files(given: Path) -> list[tuple[Path, str]]:
    if os.path.isdir(given):  # unlike is_dir, it does not raise OSError for a name that is too long
        with os_errors_as_input_errors(given, "read"):
            return [(path, "") for path in sorted(given.iterdir()) if path.name[0] != "." and path.is_file()]
    split, path = split_and_file(given)
    return [(path, split)]


def _split_of(name: str, unsaid: str) -> str:
    """Return the split in a name: `dev.small` for qrels.dev.small.tsv; `train` if it has none."""
    told = re.sub(unsaid, "", _without({".tsv", ".txt"}, name))
    return ".".join(re.findall(r"[^\W_]+", told)) or "train"


def _without(suffixes: set[str], name: str) -> str:
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix in suffixes else name
