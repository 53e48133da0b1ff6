"""The folder of an index: what it is made of, and whether it is complete.

manifest.json    the kind, the model, the collection, and the SHA-256 of the files; it is written last
building.json    in its place while files are missing: what the index is made of
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from deepsiam.data_prep.collections.flat_arrays import map_array
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import PARTIAL, make_directory, sha256_of, whole_file
from deepsiam.data_prep.common.json_file import Count, FileName, InsideName, Record, Sha256, read_json
from deepsiam.trainer.ranking.ranker import Ranker

FORMAT = 1
MANIFEST, BUILDING = "manifest.json", "building.json"
REBUILD = "make the index again, in another folder"
REMEDY = f"damaged, or not an index's; {REBUILD}"


class _Model(Record):
    checkpoint: str | None = None  # of BM25
    fingerprint: str
    query_prompt: str | None = None
    document_prompt: str | None = None


class _Collection(Record):
    directory: str
    sha256: Sha256


class _MadeOf(Record):
    """What an index is made of: the content of building.json."""

    format: int
    kind: str
    model: _Model
    collection: _Collection
    documents: Count
    dtype: str | None = None
    precision: Literal["fp32", "bf16"] | None = None  # None: fp32
    dimensions: Count | None = None  # None: all


class _Complete(_MadeOf):
    """The content of manifest.json."""

    texts: Count | None = None
    blocks: list[FileName] | None = None
    sha256: dict[InsideName, Sha256]

    @model_validator(mode="after")
    def _has_its_blocks(self) -> _Complete:
        if self.kind != "bm25" and (self.texts is None or not self.blocks or self.model.checkpoint is None):
            raise ValueError("texts, blocks and model.checkpoint: a kind with vectors needs all three")
        return self


@dataclass(frozen=True)
class IndexFolder:
    """The folder of a complete index."""

    directory: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, directory: Path) -> IndexFolder:
        """Read a manifest.

        Raises:
            InputError: the folder is not an index, or an unfinished or damaged one.
        """
        if not (directory / MANIFEST).is_file():
            if (directory / BUILDING).is_file():
                raise InputError(f"{directory}: an unfinished index: run trainer.index again, it goes on")
            raise InputError(
                f"{directory}: not an index; run: python -m trainer.index RUN --collection C --out {directory}"
            )
        return cls(directory, _read(directory / MANIFEST))

    def verify(self, *names: str) -> None:
        """Check files, by default all, against their SHA-256; raise InputError where one is damaged."""
        for name in names or self.manifest["sha256"]:
            file = self.directory / name
            if not file.is_file() or sha256_of(file) != self.manifest["sha256"].get(name):
                raise self.damaged(f"the SHA-256 of {name} is not the recorded one")

    def array(self, name: str, dtypes: Sequence[npt.DTypeLike], dimensions: int = 1) -> np.ndarray:
        """Memory-map an array of the index; raise InputError unless it is one of `dtypes` and as large as its file."""
        return map_array(self.directory / name, dtypes, dimensions, remedy=REBUILD)

    def check_width(self, query_width: int, document_width: int) -> None:
        """Raise InputError unless the model's vectors are as wide as the stored ones."""
        if query_width != document_width:
            raise self.damaged(f"its vectors have {document_width} numbers, those of its model {query_width}")

    def damaged(self, problem: object) -> InputError:
        """Return the error that reports what is wrong with the folder's files."""
        return InputError(f"{self.directory}: damaged ({problem}); {REBUILD}")


def about(ranker: Ranker, documents: int) -> dict[str, Any]:
    """Describe what an index is made of, for its manifest."""
    collection = ranker.collection
    return {
        "format": FORMAT,
        "kind": ranker.kind,
        "model": ranker.identity,
        "collection": {"directory": str(collection.directory.resolve()), "sha256": collection.sha256},
        "documents": documents,
    }


FIXED = {
    "kind": "kind",
    "model": "model",
    "collection": "collection",
    "dtype": "--dtype",
    "precision": "--precision",
    "dimensions": "--dimensions",
}  # the keys of a manifest that a resumed index must share, and their names in a message


def begin(directory: Path, made_of: dict[str, Any]) -> bool:
    """Make or resume the folder of an index; return whether the index is complete.

    Raises:
        InputError: the folder holds another index, or something else.
    """
    for name in (MANIFEST, BUILDING):
        if (directory / name).is_file():
            earlier = _read(directory / name)
            for key, option in FIXED.items():
                if _identity(earlier, key) != _identity(made_of, key):
                    raise InputError(f"{directory}: holds an index with another {option}: name another folder")
            return name == MANIFEST
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory}: is a file: name a folder")
    if directory.exists() and any(file.suffix != PARTIAL for file in directory.iterdir()):
        raise InputError(f"{directory}: holds something that is not an index: name another folder")
    make_directory(directory)
    with whole_file(directory / BUILDING) as file:
        file.write(json.dumps(made_of).encode())
    return False


def finish(directory: Path, made_of: dict[str, Any], files: Iterable[Path]) -> None:
    """Write the manifest of an index once all its files are written."""
    sha256 = {file.relative_to(directory).as_posix(): sha256_of(file) for file in files}
    with whole_file(directory / MANIFEST) as opened:
        opened.write((json.dumps(made_of | {"sha256": sha256}, indent=1) + "\n").encode())
    (directory / BUILDING).unlink(missing_ok=True)


def _identity(made_of: dict[str, Any], key: str) -> Any:
    value = made_of.get(key)  # of a model or a collection, wherever it is stored now, its hash
    return (value.get("fingerprint"), value.get("sha256")) if isinstance(value, dict) else value


def _read(path: Path) -> dict[str, Any]:
    """Read MANIFEST or BUILDING; raise InputError where it does not describe an index."""
    made_of = read_json(path, _MadeOf if path.name == BUILDING else _Complete, REMEDY).model_dump(exclude_none=True)
    if made_of["format"] != FORMAT:
        version = made_of["format"]
        raise InputError(f"{path}: its format is version {version}, this code reads {FORMAT}; make the index again")
    return made_of
