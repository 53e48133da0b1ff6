"""BRIGHT: the documents and the examples of a domain, as its repository on Hugging Face has them, or as JSON lines.

documents/DOMAIN-00000-of-00001.parquet     columns id, content; or those of long_documents/
examples/DOMAIN-00000-of-00001.parquet      columns id, query, gold_ids, gold_ids_long, excluded_ids; or those of
                                            gpt4_reason/ and the like, whose queries a language model has rewritten

The columns tell what a file is. Its examples are the split `test`, unless SPLIT=FILE names another. Relevant are the
gold_ids of a query, or its gold_ids_long where the documents are in a folder long_documents/; its excluded_ids do not
count. Documents may be empty.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.files.table import table_columns, table_rows
from deepsiam.data_prep.collections.format import (
    Format,
    Labelled,
    Text,
    Where,
    check_id,
    check_list,
    check_text,
    split_and_file,
)
from deepsiam.data_prep.collections.formats.beir import excluded_documents
from deepsiam.data_prep.common.errors import InputError

DOCUMENTS, EXAMPLES = ("id", "content"), ("id", "query", "gold_ids")
LONG_DOCUMENTS = "long_documents"


class Bright(Format):
    """A domain of BRIGHT."""

    summary = "BRIGHT's documents and examples of a domain: .parquet or .jsonl"

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Tell documents from examples by their columns."""
        documents: list[Path] = []
        examples: dict[str, list[Path]] = {}
        for split, path in map(split_and_file, inputs):
            columns = set(table_columns(path))
            if columns.issuperset(EXAMPLES):
                examples.setdefault(split or "test", []).append(path)
            elif columns.issuperset(DOCUMENTS):
                documents.append(path)
            else:
                column_sets = " or ".join(", ".join(names) for names in (DOCUMENTS, EXAMPLES))
                raise InputError(f"{path}: not of BRIGHT: its columns are not {column_sets}")
        if not (documents and examples):
            raise InputError(f"{' '.join(map(str, inputs))}: name the documents and the examples of a domain")
        self.gold = "gold_ids_long" if any(path.parent.name == LONG_DOCUMENTS for path in documents) else "gold_ids"
        self.by_part = {"corpus": documents, "queries": list(chain.from_iterable(examples.values()))}
        self.by_split = dict(sorted(examples.items()))
        self.paths = [*documents, *self.by_part["queries"]]

    def corpus(self) -> Iterator[Text]:
        return (_text(where, row, "content") for where, row in _rows(self.by_part["corpus"]))

    def queries(self) -> Iterator[Text]:
        return (_text(where, row, "query") for where, row in _rows(self.by_part["queries"]))

    def groups(self, split: str) -> Iterator[Labelled]:
        for where, row in _rows(self.by_split[split]):
            gold = check_list(row.get(self.gold), self.gold, where)
            names = list(dict.fromkeys(check_id(name, self.gold, where) for name in gold))
            yield Labelled(check_id(row.get("id"), "id", where), names, [1] * len(names), where)

    def excluded(self) -> Iterator[tuple[str, Sequence[str], Where]]:
        for where, row in _rows(self.by_part["queries"]):
            if names := excluded_documents(where, row):
                yield check_id(row.get("id"), "id", where), names, where


def _rows(files: Sequence[Path]) -> Iterator[tuple[Where, dict[str, Any]]]:
    return chain.from_iterable(map(table_rows, files))


def _text(where: Where, row: dict[str, Any], key: str) -> Text:
    text = check_text(row.get(key), key, where, may_be_empty=True)
    return Text(check_id(row.get("id"), "id", where), [text], where)
