"""Tevatron: JSON lines of queries with their passages, or with ids of a corpus; the first record tells what a file is.

with passages   {"query_id": ..., "query": ..., "positive_passages": [{"docid": ..., "title": ..., "text": ...}, ...],
                "negative_passages": [...]} a line
with ids        {"query_id": ..., "query_text": ..., "positive_document_ids": [...], "negative_document_ids": [...]}
corpus          {"docid": ..., "title": ..., "text": ...} a line; ids need one, passages may have one

Tevatron's README calls the text of a corpus `document_text`, while its code reads `text` and treats a missing text as
empty. Here either key is read, and a document without text is refused. A title, if there is one, is put before the
text, with a space. A passage without docid gets `content_id`. A file with queries is a split, named by SPLIT=FILE or
by the file's name. A negative that is also a positive of its query counts as a positive.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.format import (
    Format,
    Labelled,
    Text,
    Where,
    check_id,
    check_list,
    check_text,
    files_by_split,
    is_json,
    joined,
    json_lines,
    titled_text,
)
from deepsiam.data_prep.collections.ids import content_id
from deepsiam.data_prep.common.errors import InputError

PASSAGES = ("positive_passages", "negative_passages")
IDS = ("positive_document_ids", "negative_document_ids")
CORPUS = "docid"
TEXTS = ("text", "document_text")


class Tevatron(Format):
    """Tevatron's files."""

    summary = "Tevatron's JSON lines, or a folder of them: queries with passages, or with ids and a corpus"
    mined = True

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Detect what each file is from its first record."""
        self.by_kind: dict[str, list[Path]] = {PASSAGES[0]: [], IDS[0]: [], CORPUS: []}
        by_split: dict[str, list[Path]] = {}
        for split, paths in files_by_split(list(chain.from_iterable(map(_files, inputs)))).items():
            for path in paths:
                kind = self._kind(path)
                self.by_kind[kind].append(path)
                if kind != CORPUS:
                    by_split.setdefault(split, []).append(path)
        input_names = " ".join(map(str, inputs))
        if not by_split:
            raise InputError(f"{input_names}: no file of queries (with {PASSAGES[0]} or {IDS[0]})")
        if self.by_kind[IDS[0]] and not self.by_kind[CORPUS]:
            raise InputError(f"{self.by_kind[IDS[0]][0]}: name the corpus of its {IDS[0]} too")
        self.repeats = True if self.by_kind[PASSAGES[0]] else "queries"
        self.queried = list(chain.from_iterable(by_split.values()))
        self.by_split = dict(sorted(by_split.items()))
        self.by_part = {
            "corpus": [*self.by_kind[CORPUS], *self.by_kind[PASSAGES[0]]],
            "queries": [*self.by_kind[PASSAGES[0]], *self.by_kind[IDS[0]]],
        }
        self.paths = [*self.by_kind[CORPUS], *self.queried]

    def _kind(self, path: Path) -> str:
        where, record = next(json_lines(path), (Where(path, 1), {}))
        kind = next((key for key in self.by_kind if key in record), None)
        if kind is None:
            raise InputError(f"{where}: has none of {', '.join(self.by_kind)}, so it is not one of Tevatron's files")
        return kind

    def corpus(self) -> Iterator[Text]:
        """Yield the documents of the corpus, then the passages given with queries."""
        for path in self.by_kind[CORPUS]:
            for where, record in json_lines(path):
                check_id(record.get("docid"), "docid", where)
                yield _document(record, where)
        for path in self.by_kind[PASSAGES[0]]:
            for where, record in json_lines(path):
                yield from chain.from_iterable(_passages(record, where))

    def queries(self) -> Iterator[Text]:
        for path in self.queried:
            for where, record in json_lines(path):
                key = "query_text" if "query_text" in record else "query"
                yield Text(_query_id(record, where), [check_text(record.get(key), key, where)], where)

    def remarks(self) -> list[str]:
        return list(joined(self.by_split))

    def groups(self, split: str) -> Iterator[Labelled]:
        for path in self.by_split[split]:
            with_passages = path in self.by_kind[PASSAGES[0]]
            for where, record in json_lines(path):
                if with_passages:
                    positive, negative = ([passage.id for passage in side] for side in _passages(record, where))
                else:
                    positive, negative = ([check_id(i, key, where) for i in _list(record, key, where)] for key in IDS)
                if not positive:
                    raise InputError(f"{where}: has no positive")
                labels = [1] * len(positive) + [0] * len(negative)
                yield Labelled(_query_id(record, where), positive + negative, labels, where)


def _files(location: Path) -> list[Path]:
    if not os.path.isdir(location):  # unlike is_dir, it does not raise OSError for a name that is too long
        return [location]
    visible = (path for path in location.iterdir() if path.name[0] != "." and path.is_file())
    files = sorted(path for path in visible if is_json(path))
    if not files:
        raise InputError(f"{location}: no .jsonl file in this folder")
    return files


def _query_id(record: dict[str, Any], where: Where) -> str:
    return check_id(record.get("query_id"), "query_id", where)


def _passages(record: dict[str, Any], where: Where) -> list[list[Text]]:
    """Return the positives and the negatives of a record."""
    return [[_document(passage, where) for passage in _list(record, key, where)] for key in PASSAGES]


def _list(record: dict[str, Any], key: str, where: Where) -> list[Any]:
    """Return a list of a record; the negatives may be absent."""
    return check_list(record.get(key, [] if key in (PASSAGES[1], IDS[1]) else None), key, where)


def _document(record: Any, where: Where) -> Text:
    if not isinstance(record, dict):
        raise InputError(f"{where}: a passage is not a JSON object")
    text, name = titled_text(record, TEXTS, where), record.get("docid")
    return Text(content_id(text) if name is None else check_id(name, "docid", where), [text], where)
