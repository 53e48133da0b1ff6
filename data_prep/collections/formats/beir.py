"""BEIR: a folder of documents, queries and judgements.

corpus.jsonl        {"_id": ..., "title": ..., "text": ...} a line; title may be absent
queries.jsonl       {"_id": ..., "text": ...} a line
qrels/SPLIT.tsv     a header line, then query-id TAB corpus-id TAB score
pools/SPLIT.txt     optional: the corpus ids that the queries of SPLIT rank, one a line (an addition of this project)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.collections.format import Format, Labelled, Text, Where, check_id, check_number, json_lines, text_lines
from data_prep.common.errors import InputError

HEADER = ["query-id", "corpus-id", "score"]


class Beir(Format):
    """A folder in BEIR's layout."""

    what = "a folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv"

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Take one folder."""
        if len(inputs) != 1 or not os.path.isdir(inputs[0]):
            named = " ".join(map(str, inputs))
            raise InputError(f"{named}: {'name one folder' if len(inputs) > 1 else 'no such folder'} in BEIR's layout")
        self.folder = inputs[0]

    def files(self) -> list[Path]:
        """Return the files of the texts, and the existing qrels and pools."""
        judged = [*(self.folder / "qrels").glob("*.tsv"), *(self.folder / "pools").glob("*.txt")]
        return [self.folder / "corpus.jsonl", self.folder / "queries.jsonl", *sorted(judged)]

    def corpus(self) -> Iterator[Text]:
        """Yield the title and text of each document, joined by a space."""
        return _texts(self.folder / "corpus.jsonl")

    def queries(self) -> Iterator[Text]:
        """Yield the text of each query."""
        return _texts(self.folder / "queries.jsonl")

    def splits(self) -> list[str]:
        """Return the names of the files in qrels/."""
        splits = sorted(path.stem for path in (self.folder / "qrels").glob("*.tsv"))
        if not splits:
            raise InputError(f"{self.folder / 'qrels'}: no SPLIT.tsv with relevance judgements")
        return splits

    def groups(self, split: str) -> Iterator[Labelled]:
        """Yield the judgements of a split."""
        for row, (where, line) in enumerate(text_lines(self.folder / "qrels" / f"{split}.tsv")):
            cells = line.split("\t")
            if row == 0:
                if cells != HEADER:
                    raise InputError(f"{where}: the first line must be the header {' TAB '.join(HEADER)}")
                continue
            if len(cells) != 3:
                raise InputError(f"{where}: {len(cells)} columns, expected 3 between tabs")
            query, document, score = cells
            try:
                grade = int(score)
            except ValueError as error:
                raise InputError(f"{where}: score {score!r:.40} is not a whole number") from error
            yield Labelled(query, [document], [check_number(grade, "score", where)], where)

    def pool(self, split: str) -> Iterator[tuple[str, Where]] | None:
        """Yield the documents of pools/SPLIT.txt."""
        path = self.folder / "pools" / f"{split}.txt"
        return ((line, where) for where, line in text_lines(path)) if path.exists() else None


def _texts(path: Path) -> Iterator[Text]:
    for where, record in json_lines(path):
        name, text, title = check_id(record.get("_id"), "_id", where), record.get("text"), record.get("title") or ""
        if not isinstance(text, str):
            raise InputError(f"{where}: 'text' is missing or not a string")
        if not isinstance(title, str):
            raise InputError(f"{where}: 'title' is not a string")
        yield Text(name, [f"{title} {text}".strip()], where)
