"""Pairs of texts: a table whose rows have a query, a document and optionally a score.

.tsv, .csv      a header line, then the cells: query TAB document TAB score
.jsonl, .json   {"query": ..., "document": ..., "score": ...} a line, or an array of them
.parquet        columns query, document, score

Columns have these names or those of sentence-transformers, such as anchor and positive, or sentence1 and sentence2;
columns with other names are named by --columns, or taken in their order, with a remark. A column label or score holds
numbers, the labels; without it the label is 1. In JSON, the keys of the first object are the columns: if only a later
one has a label, it is refused. The rows of one query make one group; a pair with several scores gets the highest.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists
from deepsiam.data_prep.collections.files.table import table_rows
from deepsiam.data_prep.collections.files.text_columns import GivenColumns, text_columns
from deepsiam.data_prep.collections.format import Where, check_number, check_text
from deepsiam.data_prep.common.errors import InputError


class Pairs(CandidateLists):
    """A query is the first text of a row."""

    summary = "pairs of texts: .tsv, .csv, .jsonl, .json or .parquet with columns such as query, document, score"
    item_groups = False
    mined = True
    takes_columns = True
    negatives: ClassVar[bool] = False

    def __init__(self, inputs: Sequence[Path], columns: GivenColumns = ()) -> None:
        """Take any number of files; either all files of a split have scores, or none."""
        super().__init__(inputs)
        self.columns = {file: text_columns(file, columns, negatives=self.negatives) for file in self.paths}
        for split, (first_file, *other_files) in self.by_split.items():
            for file in other_files:
                if (self.columns[file].label is None) != (self.columns[first_file].label is None):
                    raise InputError(
                        f"split {split}: one of {first_file} and {file} has a column of labels, the other has none"
                    )

    def lists(self, file: Path) -> Iterator[CandidateList]:
        columns = self.columns[file]
        for where, row in table_rows(file):
            columns.check_keys(row, where)
            query, *candidates = (check_text(row.get(name), name, where) for name in columns.texts)
            score = None if columns.label is None else row.get(columns.label)
            labels = self.labels(len(candidates), columns.label, score, where)
            yield CandidateList([query], candidates, labels, where)

    def labels(self, candidates: int, column: str | None, score: Any, where: Where) -> list[float]:
        """Return the labels of a row's candidates; `column` is None if no column has them."""
        return [1.0] if column is None else [check_number(score, column, where)]

    def remarks(self) -> list[str]:
        """Report which columns were taken by their order."""
        remarks = super().remarks()
        for file, columns in self.columns.items():
            if not columns.by_name:
                query, document, *negatives = map(repr, columns.texts)
                roles = f"{query} is the query, {document} the document"
                roles += "".join(f", {name} a negative" for name in negatives)
                remarks.append(f"{file}: by the order of its columns, {roles}")
        return remarks
