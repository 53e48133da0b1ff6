"""BEIR: a folder of documents, queries and judgements.

corpus.jsonl        {"_id": ..., "title": ..., "text": ...} a line; title may be absent, _id may be named id
queries.jsonl       {"_id": ..., "text": ...} a line; as in BRIGHT, it may have "excluded_ids": [corpus id, ...], the
                    documents that do not count for the query; ["N/A"] is none
qrels/SPLIT.tsv     a header line, then query-id TAB corpus-id TAB score
pools/SPLIT.txt     optional: the corpus ids that the queries of SPLIT rank, one a line (an addition of this project)

Ids may be whole numbers. Texts may be empty; remarks count the documents and the queries without text. Each file may
be compressed, with .gz, .bz2, .xz or .zst after its name; if it is there plain too, the plain one is read. Dot files
are skipped.

Where corpus.jsonl is missing, the same columns are read from Parquet or JSON lines, as BEIR, NanoBEIR and MTEB have
them on Hugging Face: all files of corpus/ and of queries/; and where there is no SPLIT.tsv, those of qrels/, default/
or data/, whose names are SPLIT or SPLIT-00000-of-00002 and their suffix. There a score may be missing: 1. FOLDER/en
names the subset of en-corpus/, en-queries/ and en-qrels/.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.files.named_files import by_split, plain_first
from deepsiam.data_prep.collections.format import (
    Format,
    Labelled,
    Text,
    Where,
    check_grade,
    check_id,
    json_lines,
    text_lines,
    titled_text,
)
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.parquet import parquet_columns, parquet_rows

HEADER = ["query-id", "corpus-id", "score"]
EXCLUDED = "excluded_ids"
COLUMNS = ("_id", "id", "title", "text", EXCLUDED)
JUDGED = ("qrels", "default", "data")  # folders of judgements; MTEB's configuration `default` is in one of the others
NOT_READ = {  # folders of MTEB's that change what it measures
    "top_ranked": "so each query ranks all documents, where MTEB ranks only its own",
    "instruction": "so queries are without the instructions that MTEB puts before each",
}


class Beir(Format):
    """A folder in BEIR's layout."""

    summary = "a folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv; NanoBEIR's of .parquet files"

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Take one folder, or one subset of a folder."""
        if len(inputs) != 1:
            raise InputError(f"{' '.join(map(str, inputs))}: name one folder in BEIR's layout")
        self.folder, self.subset = inputs[0], ""
        if os.path.isdir(f"{inputs[0]}-corpus"):
            self.folder, self.subset = inputs[0].parent, f"{inputs[0].name}-"
        elif not os.path.isdir(inputs[0]):
            raise InputError(f"{inputs[0]}: no such folder in BEIR's layout")
        subsets = sorted(path.name.removesuffix("-corpus") for path in self.folder.glob("[!.]*-corpus"))
        if subsets and not (self.subset or self._found("corpus.jsonl") or self._tables("corpus")):
            raise InputError(f"{self.folder}: has subsets: name one, such as {self.folder / subsets[0]}")
        self.judged = self._by_split("qrels", ".tsv")
        self.by_split = {split: [path] for split, path in sorted(self.judged.items())} or next(
            filter(None, map(self._tables, JUDGED)), {}
        )
        self.pools = self._by_split("pools", ".txt")
        self.by_part = {part: self._text_files(part) for part in ("corpus", "queries")}
        other_files = sorted([*chain.from_iterable(self.by_split.values()), *self.pools.values()])
        self.paths = [*chain.from_iterable(self.by_part.values()), *other_files]

    def corpus(self) -> Iterator[Text]:
        return map(_text, self._records("corpus"))

    def queries(self) -> Iterator[Text]:
        return map(_text, self._records("queries"))

    def splits(self) -> list[str]:
        """Return the names of the files of judgements; raise InputError if there are none, or others in pools/."""
        splits = sorted(self.by_split)
        if not splits:
            raise InputError(f"{self._folder('qrels')}: no SPLIT.tsv with relevance judgements")
        for split, path in self.pools.items():
            if split not in splits:
                raise InputError(f"{path}: a pool of no split: the splits are {', '.join(splits)}; rename or remove it")
        return splits

    def groups(self, split: str) -> Iterator[Labelled]:
        reader = _judgements if self.judged else _judged_rows
        return chain.from_iterable(map(reader, self.by_split[split]))

    def _text_files(self, part: str) -> list[Path]:
        if not self._found("corpus.jsonl") and (tables := self._tables(part)):
            return [path for paths in tables.values() for path in paths]
        return [self._found(f"{part}.jsonl") or self.folder / f"{part}.jsonl"]

    def pool(self, split: str) -> Iterator[tuple[str, Where]] | None:
        path = self.pools.get(split)
        return ((line, where) for where, line in text_lines(path)) if path else None

    def excluded(self) -> Iterator[tuple[str, Sequence[str], Where]]:
        for where, record in self._records("queries"):
            if names := excluded_documents(where, record):
                yield _id(where, record), names, where

    def remarks(self) -> list[str]:
        """Report how many queries have no text, judged or not, as gaps.py does of documents; and what is not read."""
        where = [None if text.parts[0] else text.where for text in self.queries()]
        blanks = [at for at in where if at]
        remarks = [f"{len(blanks):,} of {len(where):,} queries have no text (the first: {blanks[0]})"] if blanks else []
        not_read = {name: effect for name, effect in NOT_READ.items() if self._tables(name)}
        return remarks + [f"{self._folder(name)}: is not read, {effect}" for name, effect in not_read.items()]

    def _found(self, name: str) -> Path | None:
        """Return a file of the folder, plain or compressed; a subset has none."""
        return None if self.subset else plain_first(self.folder, name).get(name)

    def _folder(self, part: str) -> Path:
        return self.folder / f"{self.subset}{part}"

    def _tables(self, part: str) -> dict[str, list[Path]]:
        """Return the Parquet files of a folder by their split or, where there are none, those of JSON lines."""
        return by_split(self._folder(part), ".parquet") or by_split(self._folder(part), ".jsonl")

    def _records(self, part: str) -> Iterator[tuple[Where, dict[str, Any]]]:
        return chain.from_iterable(_rows(path, COLUMNS) for path in self.by_part[part])

    def _by_split(self, folder: str, suffix: str) -> dict[str, Path]:
        files = plain_first(self._folder(folder), f"*{suffix}")
        return {name.removesuffix(suffix): path for name, path in files.items()}


def excluded_documents(where: Where, record: Mapping[str, Any]) -> list[str]:
    """Return the `excluded_ids` of a query; BRIGHT writes N/A for none."""
    ids = record.get(EXCLUDED) or []
    if not isinstance(ids, list):
        raise InputError(f"{where}: {EXCLUDED!r} is not a list")
    return [name for name in (check_id(item, EXCLUDED, where) for item in ids) if name != "N/A"]


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield the rows of a file of JSON lines or, with only the columns among `columns` that it has, of Parquet."""
    if path.suffix != ".parquet":
        yield from json_lines(path)
        return
    names = [name for name in columns if name in parquet_columns(path)]
    for row, values in parquet_rows(path, names):
        yield Where(path, 0, f"row {row}"), dict(zip(names, values, strict=True))


def _judgements(path: Path) -> Iterator[Labelled]:
    for row, (where, line) in enumerate(text_lines(path)):
        cells = line.split("\t")
        if row == 0:
            if cells != HEADER:
                raise InputError(f"{where}: the first line must be the header {' TAB '.join(HEADER)}")
            continue
        if len(cells) != 3:
            raise InputError(f"{where}: {len(cells)} columns, expected 3 between tabs")
        query, document, score = cells
        yield Labelled(query, [document], [check_grade(score, "score", where)], where)


def _judged_rows(path: Path) -> Iterator[Labelled]:
    for where, row in _rows(path, HEADER):
        query, document = (check_id(row.get(name), name, where) for name in HEADER[:2])
        score = row.get("score")
        grade = 1 if score is None else check_grade(str(score), "score", where)
        yield Labelled(query, [document], [grade], where)


def _id(where: Where, record: Mapping[str, Any]) -> str:
    key = "id" if "id" in record and "_id" not in record else "_id"
    return check_id(record.get(key), key, where)


def _text(row: tuple[Where, Mapping[str, Any]]) -> Text:
    where, record = row
    return Text(_id(where, record), [titled_text(record, ["text"], where, may_be_empty=True)], where)
