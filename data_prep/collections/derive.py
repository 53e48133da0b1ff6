"""Derive a collection from another: new candidates or scores in one split, longer documents, or other queries."""

import copy
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepsiam.data_prep.collections.collection import (
    GRADED,
    MANIFEST,
    PARTS,
    SPLITS,
    TOKENIZER,
    Collection,
    array_files,
    input_record,
)
from deepsiam.data_prep.collections.format import Text
from deepsiam.data_prep.collections.groups import no_grades
from deepsiam.data_prep.collections.relevant import ARRAYS, FOLDER, write_relevant
from deepsiam.data_prep.collections.write_texts import RowsWriter, remove_temporary, write_texts, write_tokens
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import blocks, make_directory, read_bytes, sha256_of, whole_folder

DERIVED = "derived"  # the key of the manifest
CORPUS, QUERIES = PARTS


class NewCandidates(NamedTuple):
    """The groups of a split with other candidates."""

    queries: np.ndarray  # int64 [groups]
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

    `about`, what made it, is for the manifest; `mined` are the systems that `found_by` numbers, from 1.
    """
    names = "queries", "group_ends", "candidates", "labels", "found_by", "found_scores", "scores"
    of_split = Path(SPLITS, split)

    def write(folder: Path) -> None:
        (folder / of_split).mkdir(parents=True, exist_ok=True)
        for name, array in zip(names, candidates, strict=True):
            if array is not None:
                np.save(folder / of_split / f"{name}.npy", array)

    replaced = [(of_split / f"{name}.npy").as_posix() for name in names]
    lacks_grades = bool(no_grades(candidates.labels))
    graded_splits = [name for name in source.manifest.get(GRADED, ()) if not (lacks_grades and name == split)]
    counts = copy.deepcopy(source.manifest["counts"])
    counts[SPLITS][split] = len(candidates.queries)
    return _copy(source, out, replaced, write, command=dict(about), mined=mined, graded=graded_splits, counts=counts)


def expand(source: Collection, out: Path, added_tokens: Iterable[np.ndarray], about: Mapping[str, Any]) -> Collection:
    """Make and open the collection `out`: a copy of `source` whose documents end with other tokens.

    `added_tokens` are each document's new tokens, whole words, also added to its text; `about`: see `derive`.
    """
    corpus, words = source.corpus, source.tokenizer.texts
    names = ["text", "text_ends", "tokens", "token_ends", *(["part_ends", "parts"] if corpus.part_rows else [])]
    replaced = [f"{CORPUS}/{name}.npy" for name in names]
    counts = copy.deepcopy(source.manifest["counts"])

    def write(folder: Path) -> None:
        with ExitStack() as stack:
            text = RowsWriter(stack, folder / CORPUS, "text", "text_ends")
            tokens = RowsWriter(stack, folder / CORPUS, "tokens", "token_ends", source.tokenizer.dtype.type)
            parts = RowsWriter(stack, folder / CORPUS, "parts", "part_ends", np.int64) if corpus.part_rows else None
            for i, document_tokens in enumerate(added_tokens):
                utf8 = "".join(f" {words[token]}" for token in document_tokens.tolist()).encode()
                text.extend([np.concatenate([corpus.utf8[i], np.frombuffer(utf8, np.uint8)])])
                tokens.extend([np.concatenate([corpus.tokens(i), document_tokens])])
                if parts and corpus.part_rows:
                    parts.extend([np.append(corpus.part_rows[i][:-1], len(corpus.tokens(i)) + len(document_tokens))])
            counts[CORPUS]["tokens"] = tokens.flat.length

    return _copy(source, out, replaced, write, command=dict(about), counts=counts)


class NewQuery(NamedTuple):
    """A query with one relevant document."""

    text: Text
    document: int
    split: str


def with_queries(source: Collection, out: Path, queries: Iterable[NewQuery], about: Mapping[str, Any]) -> Collection:
    """Make and open the collection `out`: the documents of `source` with other queries, at least one.

    Their ids are different; `about`: see `derive`.
    """
    counts: dict[str, Any] = {CORPUS: source.manifest["counts"][CORPUS]}
    replaced = [name for name in source.manifest["arrays"] if not name.startswith(f"{CORPUS}/")]
    graded = list[str]()

    def write(folder: Path) -> None:
        documents, splits, texts = list[int](), list[str](), folder / QUERIES

        def read() -> Iterable[Text]:
            for query in queries:
                documents.append(query.document)
                splits.append(query.split)
                yield query.text

        number, _ = write_texts(texts, read, [], repeats=False)
        counts[QUERIES] = {"texts": number, "tokens": write_tokens(texts, source.tokenizer, 1)}
        remove_temporary(texts)
        counts[SPLITS] = {split: splits.count(split) for split in sorted(set(splits))}
        graded.extend(counts[SPLITS])
        for split, size in counts[SPLITS].items():
            split_folder, numbers = folder / SPLITS / split, np.flatnonzero(np.array(splits) == split)
            split_folder.mkdir(parents=True)
            np.save(split_folder / "queries.npy", numbers)
            np.save(split_folder / "group_ends.npy", np.arange(1, size + 1))
            np.save(split_folder / "candidates.npy", np.array(documents, np.int64)[numbers])
            np.save(split_folder / "labels.npy", np.ones(size, np.float32))

    lists = {GRADED: graded, "classes": [], "mined": [], "remarks": []}
    return _copy(source, out, replaced, write, command=dict(about), counts=counts, **lists)


def _copy(
    source: Collection, out: Path, replaced: Sequence[str], write: Callable[[Path], None], **manifest: Any
) -> Collection:
    """Make and open the collection `out`: a copy of `source` with some arrays `replaced` by those that `write` writes.

    The unchanged files are hard links to those of `source`, which nothing writes to; on another file system, copies.
    `manifest` has the keys that change.
    """
    require_room(source, out)
    make_directory(out.parent)
    of_relevant = [f"{SPLITS}/{split}/{FOLDER}/{name}.npy" for split in source.splits() for name in ARRAYS]
    replaced = [*replaced, *of_relevant]
    arrays = {name: record for name, record in source.manifest["arrays"].items() if name not in replaced}
    with whole_folder(out) as folder:
        for name in arrays:
            _link(source.directory / name, folder / name)
        write(folder)
        for split in manifest.get("counts", source.manifest["counts"])[SPLITS]:
            write_relevant(folder, source.tokenizer, split)
        for path in array_files(folder):
            if (name := path.relative_to(folder).as_posix()) not in arrays:
                arrays[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        (folder / TOKENIZER).write_bytes(read_bytes(source.directory / TOKENIZER))
        inputs = [input_record(source.directory / MANIFEST, out)]
        record = {**source.manifest, DERIVED: True, **manifest, "arrays": arrays, "inputs": inputs}
        (folder / MANIFEST).write_text(json.dumps(record, indent=1) + "\n")
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
    try:
        os.link(file, to)
    except OSError:  # another file system, or one without hard links
        with open(to, "wb") as copied:
            copied.writelines(blocks(file))
