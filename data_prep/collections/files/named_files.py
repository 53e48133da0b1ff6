"""Find the files of a published data set by their names, in a folder or among files."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deepsiam.data_prep.collections.format import split_and_file
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import os_errors_as_input_errors
from deepsiam.data_prep.sources import compressed

ENDINGS = {".tsv", ".txt", ".json", ".jsonl"}
SUFFIXES = {suffix for form in compressed.FORMATS for suffix in form.suffixes}
_WORD_END = r"(?=[\W\d_]|$|(?:train|dev|eval)(?![^\W\d_]))"  # a word that is left out: no letters, but for `doctrain`
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)(?:-[0-9a-f]+)?")  # as the library datasets names the shards of a split


class NamedFile(NamedTuple):
    """A file and its split, given or derived from its name (for a file of texts, the split is not used)."""

    path: Path
    split: str
    is_given: bool = False  # SPLIT=FILE


def named_files(inputs: Sequence[Path], kinds: Mapping[str, str], unsaid: str) -> dict[str, list[NamedFile]]:
    """Return the files of every kind, in the order of the inputs.

    Args:
        inputs: folders, files, or SPLIT=FILE. In a folder, subfolders, dot files and files of no kind are skipped.
        kinds: the regular expression of each kind's names, which matches the whole name in lower case, without .gz and
            the like; the first one that matches is used.
        unsaid: a regular expression of words of a file's name that are not in the name of its split, which is otherwise
            as it is written there.
    """
    files: dict[str, list[NamedFile]] = {kind: [] for kind in kinds}
    for location in inputs:
        number = 0
        for path, split in _files(location):
            name = _without(SUFFIXES, path.name)
            if kind := next((kind for kind, pattern in kinds.items() if re.fullmatch(pattern, name.lower())), None):
                files[kind].append(NamedFile(path, split or _split_of(name, unsaid), bool(split)))
                number += 1
        if not number:
            names = "no file in it is named" if location.is_dir() else "it is not named"
            raise InputError(f"{location}: {names} as one of these: {', '.join(kinds)} (a .tar must be unpacked first)")
    return files


def joined_by_split(files: Sequence[NamedFile]) -> dict[str, list[Path]]:
    """Return the files of each split; raise InputError where two have one name, which neither was given."""
    files_by_split: dict[str, list[Path]] = {}
    paths_by_split: dict[str, Path] = {}
    for path, split, is_given in files:
        if not is_given and (first_path := paths_by_split.setdefault(split, path)) != path:
            raise InputError(
                f"{path}: by its name it is the split {split}, as {first_path} is: leave one out, or write SPLIT={path}"
            )
        files_by_split.setdefault(split, []).append(path)
    return files_by_split


def plain_first(folder: Path, names: str) -> dict[str, Path]:
    """Return a folder's files of a pattern, plain or compressed, by their plain names; dot files are skipped."""
    files: dict[str, Path] = {}
    for end in ("", *(form.suffixes[0] for form in compressed.FORMATS)):
        for path in folder.glob(names + end):
            if path.name[0] != ".":
                files.setdefault(path.name.removesuffix(end), path)
    return files


def by_split(folder: Path, suffix: str) -> dict[str, list[Path]]:
    """Return the files `SPLIT` + suffix of a folder, and those in shards, `SPLIT-00000-of-00002` + suffix, by split.

    The whole name before that is the split: `test.full` and `test-hard` are not `test`.
    """
    files: dict[str, list[Path]] = {}
    shards: dict[str, list[tuple[int, int]]] = {}
    for name, path in sorted(plain_first(folder, f"*{suffix}").items()):
        shard = _SHARD.fullmatch(name.removesuffix(suffix))
        split = shard[1] if shard else name.removesuffix(suffix)
        files.setdefault(split, []).append(path)
        shards.setdefault(split, []).append((int(shard[2]), int(shard[3])) if shard else (0, 1))
    for split, numbers in shards.items():
        total = numbers[-1][1]
        if sorted(numbers) != [(i, total) for i in range(total)]:
            raise InputError(
                f"{files[split][-1]}: {folder.name} has {len(numbers):,} files of {split}, not each of its {total:,} "
                "shards once: get those that are missing, or remove those that are too many"
            )
    return files


def _files(location: Path) -> list[tuple[Path, str]]:
    if os.path.isdir(location):  # unlike is_dir, it does not raise OSError for a name that is too long
        with os_errors_as_input_errors(location, "read"):
            return [(path, "") for path in sorted(location.iterdir()) if path.name[0] != "." and path.is_file()]
    split, path = split_and_file(location)
    return [(path, split)]


def _split_of(name: str, unsaid: str) -> str:
    """Return the split in a name: `dev.small` for qrels.dev.small.tsv; `train` if it has none."""
    words = re.split(rf"[\W_]*(?<![^\W\d_])(?:{unsaid}){_WORD_END}[\W_]*", _without(ENDINGS, name), flags=re.IGNORECASE)
    return re.sub(r"[^\w.-]", "-", ".".join(filter(None, words))).lstrip(".-") or "train"


def _without(suffixes: set[str], name: str) -> str:
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in suffixes else name
