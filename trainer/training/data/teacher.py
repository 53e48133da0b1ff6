"""A teacher's vectors of texts, which a student learns: the folder that `trainer.embed` writes, as a run reads it.

made_of.json        the model, the texts and what else decides the vectors
blocks/NNNNNN.npy   fp16 [n, W]: the vectors of a part of the texts
keys.npy            int64 [N], sorted: the keys of the texts, by the data's tokens and their side
rows.npy            int64 [N]: which of all vectors each has
manifest.json       the same as made_of.json, the width, and the SHA-256 of the files; it is written last
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.flat_arrays import map_array
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.common.json_file import Count, InsideName, Record, Sha256, read_json
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.batching.candidates import text_key
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.recipe.schema import Recipe

FORMAT = 1
MANIFEST, KEYS, ROWS, BLOCKS = "manifest.json", "keys.npy", "rows.npy", "blocks"
REMEDY = "run: python -m trainer.embed TEACHER TEXTS --out"
SIDE_KEYS = {"query": np.int64(0x5851F42D4C957F2D), "document": np.int64(0)}  # tell equal texts of two sides apart


class MadeOf(Record):
    """What decides the vectors: the content of made_of.json."""

    format: int
    teacher: str
    fingerprint: str
    precision: str
    dimensions: Count | None
    texts: dict[str, Sha256]  # collections and folders of shards, by the SHA-256 of their manifests
    tokenizer: Sha256  # of the texts
    passage_tokens: Count


class Complete(MadeOf):
    """The content of manifest.json."""

    width: Count
    sha256: dict[InsideName, Sha256]


def side_keys(side: str, keys: np.ndarray) -> np.ndarray:
    """Return the keys of the texts of a side, int64 [n], given `text_key` of their tokens, int64 [n]."""
    return keys ^ SIDE_KEYS[side]


@dataclass(frozen=True)
class TeacherVectors:
    """An opened folder of vectors."""

    folder: Path
    manifest: Complete
    keys: np.ndarray  # int64 [N], sorted
    rows: np.ndarray  # int64 [N]
    blocks: list[np.ndarray]  # fp16 [n, W]

    @classmethod
    def open(cls, folder: Path) -> TeacherVectors:
        """Verify and memory-map a folder; raise InputError if it is missing, unfinished or damaged."""
        if not (folder / MANIFEST).is_file():
            raise InputError(f"{folder}: no finished folder of a teacher's vectors; {REMEDY} {folder}")
        remedy = f"remove it, and {REMEDY} {folder}"
        manifest = read_json(folder / MANIFEST, Complete, remedy)
        if manifest.format != FORMAT:
            raise InputError(f"{folder}: its format is version {manifest.format}, this code reads {FORMAT}; {remedy}")
        for name, sha256 in manifest.sha256.items():
            if not (folder / name).is_file() or sha256_of(folder / name) != sha256:
                raise InputError(f"{folder / name}: damaged (its SHA-256 is not the recorded one); {remedy}")
        keys, rows = (map_array(folder / name, [np.int64], remedy=remedy) for name in (KEYS, ROWS))
        names = sorted(name for name in manifest.sha256 if name.startswith(f"{BLOCKS}/"))
        blocks = [map_array(folder / name, [np.float16], 2, remedy=remedy) for name in names]
        opened = cls(folder, manifest, keys, rows, blocks)
        if any(block.shape[1] != manifest.width for block in blocks) or len(keys) != len(rows):
            raise InputError(f"{folder}: damaged (its arrays are of different vectors); {remedy}")
        return opened

    @property
    def sha256(self) -> str:
        """The SHA-256 of the manifest, which covers every file."""
        return sha256_of(self.folder / MANIFEST)

    def vectors(self, side: str, keys: np.ndarray) -> np.ndarray:
        """Return the vectors, fp32 [n, W], of texts of a side by their keys, int64 [n]; raise InputError if absent."""
        wanted = side_keys(side, keys)
        if not (known := self._knows(wanted)).all():
            raise InputError(f"data.teacher: {self.folder} has no vectors of {(~known).sum()} texts of a micro-batch")
        rows, ends = self.rows[self.keys.searchsorted(wanted)], np.cumsum([len(block) for block in self.blocks])
        found, numbers = np.empty((len(rows), self.manifest.width), np.float32), ends.searchsorted(rows, side="right")
        for number in np.unique(numbers).tolist():
            at, block = numbers == number, self.blocks[number]
            found[at] = block[rows[at] - ends[number] + len(block)]
        return found

    def _knows(self, keys: np.ndarray) -> np.ndarray:
        places = self.keys.searchsorted(keys)
        return np.asarray(self.keys[np.minimum(places, len(self.keys) - 1)] == keys)

    def require_passages(self, passage_tokens: int) -> None:
        """Raise InputError where passages were cut to another length than a method's."""
        if passage_tokens != self.manifest.passage_tokens:
            raise InputError(
                f"method.passage_tokens: {passage_tokens}, but {self.folder} has the vectors of passages of "
                f"{self.manifest.passage_tokens} tokens: set {self.manifest.passage_tokens}"
            )

    def require_texts(self, texts: Iterable[tuple[str, np.ndarray, str]], sha256: str, where: Path) -> None:
        """Raise InputError, naming the first, where texts are missing: each a side, its tokens and a name.

        They are not read where the vectors were made of just these.
        """
        if sha256 in self.manifest.texts.values():
            return
        number = missing = 0
        first = ""
        for side, tokens, name in texts:
            number += 1
            if not self._knows(side_keys(side, np.array([text_key(tokens)]))).all():
                missing, first = missing + 1, first or f"{side} {name}"
        if missing:
            raise InputError(
                f"data.teacher: {self.folder} lacks the vectors of {missing:,} of {number:,} texts of {where}, the "
                f"first of {first}: {REMEDY} another folder"
            )

    def require_width(self, model: TrunkModel) -> None:
        """Raise InputError where a model learns vectors of another width."""
        width, keys = self.manifest.width, model.keys
        learned = keys.teacher_width or getattr(model, "width", None)
        if learned != width:
            raise InputError(
                f"method.teacher_width: the student learns vectors of {learned} numbers, but those of {self.folder} "
                f"have {width}: set method.teacher_width={width}"
            )


def texts_of(collection: Collection) -> Iterator[tuple[str, np.ndarray, str]]:
    """Yield the side, the tokens and the name of every document and query."""
    for side, texts in (("document", collection.corpus), ("query", collection.queries)):
        for i in range(len(texts)):
            yield side, texts.tokens(i), texts.called(i)


def open_teacher(recipe: Recipe, tokenizer: Tokenizer) -> TeacherVectors | None:
    """Open the vectors that a recipe's losses learn, if they learn any.

    Raises:
        InputError: the recipe names none, or some that no loss learns; they are damaged, or of another tokenizer.
    """
    folder, learns = recipe.data.teacher, any(method.learns_vectors for method in recipe.methods)
    if folder is None:
        if learns:
            raise InputError(f"data.teacher: a loss learns a teacher's vectors: name their folder; {REMEDY} FOLDER")
        return None
    if not learns:
        raise InputError("data.teacher: no loss learns a teacher's vectors: leave it out, or add one to method.loss")
    teacher = TeacherVectors.open(folder)
    if tokenizer.fingerprint != teacher.manifest.tokenizer:
        raise InputError(
            f"data.teacher: {folder} knows its texts by another tokenizer than {tokenizer.path}: make it of texts of "
            "this tokenizer"
        )
    return teacher
