"""Triples of texts: a table whose rows have a query, a document, its negatives and optionally their scores.

.tsv, .csv      a header line, then the cells: query TAB document TAB negative
.jsonl, .json   {"query": ..., "document": ..., "negative": ...} a line, or an array of them
.parquet        columns query, document, negative

Columns are found as in pairs.py; there may be several negatives (negative_1, negative_2, ...). Labels are 1 for the
document and 0 for the negatives, or a teacher's scores: a column label or score with a list, one score for each text.
The rows of one query make one group, in which a text with several labels gets the highest: a positive of one row is
never a negative of another. For MS MARCO's triples, which have no header, use the format msmarco.
"""

from typing import Any

from deepsiam.data_prep.collections.format import Where, check_number
from deepsiam.data_prep.collections.formats.pairs import Pairs
from deepsiam.data_prep.common.errors import InputError


class Triples(Pairs):
    """A document and its negatives."""

    summary = "triples of texts: .tsv, .csv, .jsonl, .json or .parquet with columns such as query, document, negative"
    negatives = True

    def labels(self, candidates: int, column: str | None, score: Any, where: Where) -> list[float]:
        if column is None:
            return [1.0] + [0.0] * (candidates - 1)
        if not isinstance(score, list) or len(score) != candidates:
            raise InputError(f"{where}: {column!r} is not a list with a score of the document and of each negative")
        return [check_number(number, column, where) for number in score]
