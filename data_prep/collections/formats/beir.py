"""BEIR: a folder of documents, queries and judgements.

corpus.jsonl        {"_id": ..., "title": ..., "text": ...} a line; title may be absent
queries.jsonl       {"_id": ..., "text": ...} a line
qrels/SPLIT.tsv     a header line, then query-id TAB corpus-id TAB score
pools/SPLIT.txt     optional: the corpus ids that the queries of SPLIT rank, one a line (an addition of this project)

Texts may be empty; remarks count the documents and the queries without text. Each file may be compressed, with .gz,
.bz2, .xz or .zst after its name; if it is there plain too, the plain one is read. Dot files are skipped.

Where corpus.jsonl is missing, the same columns are read from Parquet files, as BEIR and NanoBEIR have them on Hugging
Face: corpus/*.parquet and queries/*.parquet; and where there is no SPLIT.tsv, qrels/SPLIT-*.parquet, where a score may
be missing: 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.collections.format import Format, Labelled, Text, Where, check_grade, check_id, json_lines, text_lines
from data_prep.common.errors import InputError
from data_prep.sources import compressed
from data_prep.sources.parquet import parquet_columns, parquet_rows

HEADER = ["query-id", "corpus-id", "score"]
ENDS = ("", *(known.suffixes[0] for known in compressed.FORMATS))  # of names, the plain one first


class Beir(Format):
    """A folder in BEIR's layout."""

    what = "a folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv; NanoBEIR's of .parquet files"

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Take one folder."""
        if len(inputs) != 1 or not os.path.isdir(inputs[0]):
            named = " ".join(map(str, inputs))
            raise InputError(f"{named}: {'name one folder' if len(inputs) > 1 else 'no such folder'} in BEIR's layout")
        self.folder = inputs[0]

    def files(self) -> list[Path]:
        """Return the files of the texts, and the existing qrels and pools."""
        judged = self._parquet("qrels") if self._judged_in_parquet else self._by_split("qrels", ".tsv").values()
        pools = self._by_split("pools", ".txt").values()
        return [*self.text_files("corpus"), *self.text_files("queries"), *sorted([*judged, *pools])]

    def corpus(self) -> Iterator[Text]:
        """Yield the title and text of each document, joined by a space."""
        return self._texts("corpus")

    def queries(self) -> Iterator[Text]:
        """Yield the text of each query."""
        return self._texts("queries")

    def splits(self) -> list[str]:
        """Return the names of the files in qrels/; raise InputError if there are none, or others in pools/."""
        splits = sorted(self._by_split("qrels", ".tsv"))
        if self._judged_in_parquet:
            splits = sorted({path.name.split("-")[0].removesuffix(".parquet") for path in self._parquet("qrels")})
        if not splits:
            raise InputError(f"{self.folder / 'qrels'}: no SPLIT.tsv with relevance judgements")
        for split, path in self._by_split("pools", ".txt").items():
            if split not in splits:
                raise InputError(f"{path}: a pool of no split: the splits are {', '.join(splits)}; rename or remove it")
        return splits

    def groups(self, split: str) -> Iterator[Labelled]:
        """Yield the judgements of a split."""
        if self._judged_in_parquet:
            yield from self._parquet_groups(split)
            return
        for row, (where, line) in enumerate(text_lines(self._by_split("qrels", ".tsv")[split])):
            cells = line.split("\t")
            if row == 0:
                if cells != HEADER:
                    raise InputError(f"{where}: the first line must be the header {' TAB '.join(HEADER)}")
                continue
            if len(cells) != 3:
                raise InputError(f"{where}: {len(cells)} columns, expected 3 between tabs")
            query, document, score = cells
            yield Labelled(query, [document], [check_grade(score, "score", where)], where)

    def text_files(self, part: str) -> list[Path]:
        """Return the file of the documents, or of the queries."""
        return self._parquet(part) if self._is_parquet else [self._texts_file(part)]

    def group_files(self, split: str) -> list[Path]:
        """Return the qrels of a split."""
        if self._judged_in_parquet:
            return [path for path in self._parquet("qrels") if path.name.startswith((f"{split}-", f"{split}."))]
        return [self._by_split("qrels", ".tsv")[split]]

    def pool(self, split: str) -> Iterator[tuple[str, Where]] | None:
        """Yield the documents of pools/SPLIT.txt."""
        path = self._by_split("pools", ".txt").get(split)
        return ((line, where) for where, line in text_lines(path)) if path else None

    def remarks(self) -> list[str]:
        """Report how many queries have no text, judged or not, as gaps.py does of documents."""
        where = [None if text.parts[0] else text.where for text in self.queries()]
        empty = [at for at in where if at]
        return [f"{len(empty):,} of {len(where):,} queries have no text (the first: {empty[0]})"] if empty else []

    @property
    def _is_parquet(self) -> bool:
        return not self._texts_file("corpus").exists() and bool(self._parquet("corpus"))

    @property
    def _judged_in_parquet(self) -> bool:
        return not self._by_split("qrels", ".tsv") and bool(self._parquet("qrels"))

    def _parquet(self, part: str) -> list[Path]:
        return sorted((self.folder / part).glob("[!.]*.parquet"))

    def _texts(self, part: str) -> Iterator[Text]:
        if not self._is_parquet:
            for where, record in json_lines(self._texts_file(part)):
                yield _text(where, record)
            return
        for path in self._parquet(part):
            columns = [name for name in ("_id", "title", "text") if name in parquet_columns(path)]
            for row, values in parquet_rows(path, columns):
                yield _text(Where(path, 0, f"row {row}"), dict(zip(columns, values, strict=True)))

    def _parquet_groups(self, split: str) -> Iterator[Labelled]:
        for path in self.group_files(split):
            columns = [name for name in HEADER if name in parquet_columns(path)]
            for row, values in parquet_rows(path, columns):
                where, cells = Where(path, 0, f"row {row}"), dict(zip(columns, values, strict=True))
                query, document = (check_id(cells.get(name), name, where) for name in HEADER[:2])
                score = cells.get("score")
                grade = 1 if score is None else check_grade(str(score), "score", where)
                yield Labelled(query, [document], [grade], where)

    def _texts_file(self, part: str) -> Path:
        """Return the file of the documents or queries; where it is missing, its plain name."""
        plain = self.folder / f"{part}.jsonl"
        return _plain_first(self.folder, plain.name).get(plain.name, plain)

    def _by_split(self, folder: str, suffix: str) -> dict[str, Path]:
        """Return the files of a folder, whose names are SPLIT and the suffix."""
        found = _plain_first(self.folder / folder, f"[!.]*{suffix}")
        return {name.removesuffix(suffix): path for name, path in found.items()}


def _plain_first(folder: Path, names: str) -> dict[str, Path]:
    """Return a folder's files of a pattern, plain or compressed, by their plain names."""
    found: dict[str, Path] = {}
    for end in ENDS:
        for path in folder.glob(names + end):
            found.setdefault(path.name.removesuffix(end), path)
    return found


def _text(where: Where, record: Mapping[str, Any]) -> Text:
    name, text, title = check_id(record.get("_id"), "_id", where), record.get("text"), record.get("title") or ""
    if not isinstance(text, str):
        raise InputError(f"{where}: 'text' is missing or not a string")
    if not isinstance(title, str):
        raise InputError(f"{where}: 'title' is not a string")
    return Text(name, [f"{title} {text}".strip()], where)
