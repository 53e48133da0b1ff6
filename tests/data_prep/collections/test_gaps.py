"""Gaps in a collection are reported once, when it is built; a collection without gaps has no remarks."""

import json
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.formats.beir import Beir
from deepsiam.data_prep.collections.gaps import require_any
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.toy import write_beir


def test_the_files_of_a_message_are_few() -> None:
    reader = Beir([Path()])
    reader.paths = [Path(f"{i}.tsv") for i in range(5)]
    reader.remarks = list  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"nothing: 0.tsv, 1.tsv, 2.tsv, 2 more$"):
        require_any(0, "nothing", reader)


def test_documents_without_text_and_queries_without_relevant_ones(tmp_path: Path, small: Tokenizer) -> None:
    corpus, queries = {"d0": "a fox", "d1": "", "d2": "dogs sleep", "d3": " "}, {f"q{i}": "who runs" for i in range(3)}
    folder = write_beir(tmp_path, corpus, queries, train="q0\td0\t1\nq1\td2\t0\nq1\td1\t0\nq2\td0\t-1\n")
    assert build("beir", [folder], folder, small).manifest["remarks"] == [
        "2 of 4 documents have no text (the first: d1)",
        "split train: 2 of 3 queries have no relevant document (the first: q1)",
    ]


def test_a_query_with_a_relevant_document_in_another_of_its_lists_lacks_none(tmp_path: Path, small: Tokenizer) -> None:
    rows = [("a fox", 0, 1), ("a fox", 1, 0), ("dogs", 1, 0)]
    lines = [{"query": query, "passages": [{"text": f"p{i}", "label": label}]} for query, i, label in rows]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    opened = build("answer_selection", [tmp_path / "train.jsonl"], tmp_path / "c", small)
    assert opened.manifest["remarks"] == ["split train: 1 of 2 queries have no relevant document (the first: 'dogs')"]
