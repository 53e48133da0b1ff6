"""A collection: documents, queries and their labelled groups, memory-mapped; build.py makes it.

manifest.json       format version, command, tokenizer, counts, SHA-256 of the inputs and of every array
tokenizer.json      the tokenizer of its tokens
corpus/, queries/   see texts.py and excluded.py
splits/SPLIT/       see groups.py; in relevant/, what is relevant to each query's text, see relevant.py

Opening reads no array: it costs the same for 10 thousand and for 10 million documents, and all processes of a host
share the pages. `verify` checks every byte.
"""

import json
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.collections.excluded import ExcludedDocuments
from deepsiam.data_prep.collections.formats.beir import Beir
from deepsiam.data_prep.collections.groups import Groups, no_grades
from deepsiam.data_prep.collections.texts import Texts
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import read_bytes, sha256_of
from deepsiam.data_prep.common.json_file import Count, InsideName, Record, Sha256, read_json
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.check import require_same_tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import SPLIT, Tokenizer

FORMAT = 1
GRADED = "graded"  # the key of the manifest with the splits whose labels are relevance
MANIFEST, TOKENIZER, SPLITS = "manifest.json", "tokenizer.json", "splits"
PARTS = ("corpus", "queries")


class _File(Record):
    bytes: Count
    sha256: Sha256


class _Input(_File):
    """The record of an input (see `input_record`)."""

    file: str
    inside: bool


class _Tokenizer(Record):
    fingerprint: str


class _Texts(Record):
    texts: Count


class _Counts(Record):
    corpus: _Texts
    queries: _Texts
    splits: dict[str, Count]  # the number of groups


class Manifest(Record):
    """What a manifest must have."""

    arrays: dict[InsideName, _File]
    inputs: list[_Input]
    tokenizer: _Tokenizer
    counts: _Counts
    classes: list[str] = []


@dataclass(frozen=True)
class Collection:
    """An opened collection."""

    directory: Path
    tokenizer: Tokenizer
    corpus: Texts
    queries: Texts
    manifest: dict[str, Any]

    @classmethod
    def open(cls, directory: Path) -> "Collection":
        """Open a collection.

        Raises:
            InputError: it is missing, unfinished or damaged, or the files next to it that it was made from have changed
                since (naming the command that makes it).
        """
        directory = Path(directory)
        manifest = _manifest(directory)
        tokenizer = tokenizers.load(directory / TOKENIZER).splitting(manifest["tokenizer"].get(SPLIT) is not False)
        if tokenizer.fingerprint != manifest["tokenizer"]["fingerprint"] or _changed(directory, manifest):
            raise InputError(f"{directory}: the texts or tokenizer.json changed since tokenising; {remedy(directory)}")
        corpus, queries = (Texts.map(directory / part, tokenizer.vocab_size) for part in PARTS)
        for part, texts in zip(PARTS, (corpus, queries), strict=True):
            if len(texts) != manifest["counts"][part]["texts"]:
                raise InputError(f"{directory / part}: damaged (its number of texts); {remedy(directory)}")
        return cls(directory, tokenizer, corpus, queries, manifest)

    @classmethod
    def of_texts(cls, queries: Sequence[str], documents: Sequence[str], tokenizer: Tokenizer) -> "Collection":
        """Hold texts in memory, in no folder: enough for a ranker of lists."""
        corpus, asked = Texts.of(documents, tokenizer), Texts.of(queries, tokenizer)
        return cls(Path("texts"), tokenizer, corpus, asked, {})

    @property
    def sha256(self) -> str:
        """The SHA-256 of the manifest, which covers every array."""
        return sha256_of(self.directory / MANIFEST)

    @property
    def classes(self) -> list[str]:
        """The names of the classes that the labels number; empty if labels are relevance or scores."""
        return list(self.manifest.get("classes", []))

    @cached_property
    def excluded(self) -> ExcludedDocuments:
        """The documents that do not count for a query."""
        return ExcludedDocuments.map(self.directory / PARTS[1], len(self.queries), len(self.corpus))

    def require_tokenizer(self, tokenizer: Tokenizer, owner: object) -> None:
        """Raise InputError where another tokenizer than that of `owner` made the tokens."""
        instead = remedy(self.directory, tokenizer.path)
        require_same_tokenizer(tokenizer, owner, self.tokenizer.fingerprint, self.directory, instead)

    def splits(self) -> list[str]:
        """Return the names of the splits."""
        return sorted(self.manifest["counts"][SPLITS])

    def groups(self, split: str) -> Groups:
        """Return the groups of a split; raise InputError, naming the existing splits, if it does not exist."""
        if split not in self.splits():
            existing = ", ".join(self.splits()) or "none"
            raise InputError(f"{self.directory / SPLITS}: no split {split!r}; choose one of: {existing}")
        return Groups.map(self.directory / SPLITS / split)

    def judged_groups(self, split: str) -> Groups:
        """Return the groups of a split whose labels are relevance; raise InputError, saying why, for other labels."""
        groups, where = self.groups(split), self.directory / SPLITS / split
        if self.classes:
            these = "only trainer.evaluate --classes and method.loss=classes read them"
            raise InputError(f"{where}: its labels are classes, not relevance: {these}")
        if problem := no_grades(groups.labels):
            instead = "write 1 for relevant and 0 for other documents, or name another split"
            raise InputError(f"{where}: {problem}, so not relevance: {instead}")
        return groups

    def require_relevance(self, split: str) -> None:
        """Raise InputError as `judged_groups`; the labels of a split that is recorded as graded are not read."""
        if split not in self.manifest.get(GRADED, ()):
            self.judged_groups(split)

    def qrels(self, split: str) -> dict[str, dict[str, int]]:
        """Return the relevance judgements of a split: query id -> corpus id -> score, a whole number.

        A document that several groups of a query judge has the highest score: what is relevant in one is relevant. A
        judged document that the corpus lacks has an id that no text can have, with a tab.
        """
        groups = self.judged_groups(split)
        judgements: dict[str, dict[str, int]] = {}
        for i in range(len(groups)):
            query, candidates, labels = groups[i]
            judged = judgements.setdefault(self.queries.ids[query], {})
            for candidate, label in chain(zip(candidates.tolist(), labels.tolist(), strict=True), groups.elsewhere(i)):
                document = self.corpus.ids[candidate] if candidate >= 0 else f"\t{len(judged)}"
                judged[document] = max(int(label), judged.get(document, int(label)))
        return judgements

    def pool(self, split: str) -> np.ndarray:
        """Return the numbers (int64) of the documents that a split's queries rank: its pool, or all documents."""
        pool = self.groups(split).pool
        return np.arange(len(self.corpus)) if pool is None else pool


def input_record(path: Path, out: Path) -> dict[str, Any]:
    """Return the manifest's record of an input file; a file inside `out` is named relative to it, to be found again."""
    inside = path.absolute().is_relative_to(out.absolute())
    return {"file": name_in(path, out), "inside": inside, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def name_in(path: Path, out: Path) -> str:
    """Return a path as the manifest has it: relative to `out` if it is inside, else as given."""
    file, folder = path.absolute(), out.absolute()
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else str(path)


def texts_of(directory: Path) -> Iterator[str]:
    """Yield every document and query of a collection, or of a BEIR folder that is not tokenised yet."""
    if (directory / MANIFEST).is_file():
        opened = Collection.open(directory)
        yield from opened.corpus.texts()
        yield from opened.queries.texts()
    else:
        reader = Beir([directory])
        for text in chain(reader.corpus(), reader.queries()):
            yield " ".join(text.parts)


def verify(directory: Path) -> Iterator[str]:
    """Yield a line for every array of a collection, and its tokenizer, that differs from its manifest."""
    sound = True
    for problem in _differences(directory, _manifest(directory)):
        sound = False
        yield problem
    if sound:
        opened = Collection.open(directory)
        for split in opened.splits():
            opened.groups(split)


def _differences(directory: Path, manifest: dict[str, Any]) -> Iterator[str]:
    arrays = {name: record["sha256"] for name, record in manifest["arrays"].items()}
    for name, recorded in {**arrays, TOKENIZER: manifest["tokenizer"]["fingerprint"]}.items():
        path = directory / name
        if not path.is_file():
            yield f"{path}: is missing"
        elif sha256_of(path) != recorded:
            yield f"{path}: is damaged (its SHA-256 is not the recorded one)"
    for path in array_files(directory):
        if path.relative_to(directory).as_posix() not in arrays:
            yield f"{path}: is not in the manifest"


def array_files(directory: Path) -> list[Path]:
    """Return the arrays in the folders of a collection, sorted."""
    return sorted(path for part in (*PARTS, SPLITS) for path in (directory / part).rglob("*.npy"))


def _manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    if not path.is_file():
        raise InputError(f"{directory}: not tokenised, or not a collection; {remedy(directory)}")
    damaged = f"damaged, or not a collection's; {remedy(directory)}"
    try:
        manifest = _read_manifest(path)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: {damaged}") from error
    if (version := manifest["format"]) != FORMAT:
        versions = f"version {reprlib.repr(version)}, this code reads {FORMAT}"
        raise InputError(f"{path}: its format is {versions}; {remedy(directory)}")
    read_json(path, Manifest, damaged)
    return manifest


def _read_manifest(path: Path) -> dict[str, Any]:
    """Return a collection's manifest of any version; raise ValueError, KeyError and the like for anything else."""
    manifest = json.loads(read_bytes(path))
    keys = "format", "arrays", "inputs"
    _ = [manifest[key] for key in keys], manifest["tokenizer"]["fingerprint"], manifest["counts"][SPLITS]
    return manifest


def is_collection(directory: Path) -> bool:
    """Return whether a folder has the manifest of a collection, of any version."""
    try:
        return bool(_read_manifest(directory / MANIFEST))
    except (InputError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _changed(directory: Path, manifest: dict[str, Any]) -> bool:
    """Return whether the files next to a collection that it was made from have changed."""
    inside = {record["file"]: record for record in manifest["inputs"] if record["inside"]}
    in_place = manifest.get("command") == {"format": "beir", "inputs": ["."]}
    if in_place and {path.relative_to(directory).as_posix() for path in Beir([directory]).paths} != set(inside):
        return True
    time = (directory / MANIFEST).stat().st_mtime_ns
    return any(_is_changed(directory / name, record, time) for name, record in inside.items())


def _is_changed(path: Path, record: dict[str, Any], time: int) -> bool:
    if not path.is_file() or path.stat().st_size != record["bytes"]:
        return True
    # a file newer than the manifest may be a copy, so it is read; an older one is not: it may be large
    return path.stat().st_mtime_ns >= time and sha256_of(path) != record["sha256"]


def remedy(directory: Path, tokenizer: Path = Path("TOKENIZER.json")) -> str:
    """Return the command that makes the collection of a folder: in place, if its input is there."""
    if (directory / "corpus.jsonl").is_file():
        return f"run: python -m data_prep collection {directory} --tokenizer {tokenizer}"
    return f"run: python -m data_prep collection FORMAT INPUT... --out {directory} --tokenizer {tokenizer}"
