"""Triples in every kind of table: one or more negatives, scores; every bad row is reported."""

import json
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.triples import Triples
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices, exhaust


def text(file: Path, content: str) -> Path:
    file.write_bytes(content.encode())
    return file


def test_a_positive_of_one_row_is_no_negative_of_another(tmp_path: Path, small: Tokenizer) -> None:
    rows = "fox\ta red fox\ta dog\r\nfox\ta fox\ta red fox\r\ndog\ta dog\ta fox\r\n"
    opened = build(
        "triples", [text(tmp_path / "a.tsv", "anchor\tpositive\tnegative\r\n" + rows)], tmp_path / "o", small
    )
    assert choices(opened, "train") == [
        ("fox", {"a red fox": 1, "a dog": 0, "a fox": 1}),
        ("dog", {"a dog": 1, "a fox": 0}),
    ]


def test_names_decide_where_a_writer_has_sorted_the_columns(tmp_path: Path, small: Tokenizer) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the packages of the extra `dumps`")
    from pyarrow import parquet

    columns = {"anchor": ["fox"], "negative": ["a dog"], "positive": ["a red fox"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    opened = build("triples", [tmp_path / "a.parquet"], tmp_path / "out", small)
    assert choices(opened, "train") == [("fox", {"a red fox": 1, "a dog": 0})]


def test_several_negatives_and_a_teachers_scores(tmp_path: Path, small: Tokenizer) -> None:
    record = {"query": "fox", "positive": "a red fox", "negative_1": "a dog", "negative_2": "a stone"}
    file = text(tmp_path / "a.jsonl", json.dumps(record) + "\n")
    opened = build("triples", [file], tmp_path / "out", small)
    assert choices(opened, "train") == [("fox", {"a red fox": 1, "a dog": 0, "a stone": 0})]
    file = text(tmp_path / "b.jsonl", json.dumps({"score": [9, 2.5, -1]} | record) + "\n")
    opened = build("triples", [file], tmp_path / "scored", small)
    assert choices(opened, "train") == [("fox", {"a red fox": 9, "a dog": 2.5, "a stone": -1})]


def test_unknown_names_are_taken_in_their_order_with_a_remark(tmp_path: Path) -> None:
    reader = Triples([text(tmp_path / "a.jsonl", '{"q": "fox", "good": "a red fox", "bad": "a dog"}\n')])
    assert [text.parts for text in reader.corpus()] == [["a red fox"], ["a dog"]]
    assert reader.remarks() == [
        f"{tmp_path / 'a.jsonl'}: by the order of its columns, 'q' is the query, 'good' the document, 'bad' a negative"
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("fox\ta red fox\ta dog\n", "a: its columns are fox, a red fox, a dog; name them query, document, negative"),
        ("query\tdocument\nx\ty\n", "a: its columns are query, document; name them"),
        ("query\tdocument\tnegative\nx\ty\n", "a:2: 2 columns, the header has 3"),
        ("query\tdocument\tnegative\nx\ty\t \n", "a:2: 'negative' is empty"),
        ("query\tdocument\tnegative\tlabel\nx\ty\tz\t3\n", "a:2: 'label' is not a list with a score of the document"),
        ('{"query": "x", "pos": ["y"], "neg": ["z"]}', "a:1: 'pos' is missing or not a string"),
        ('{"query": "x", "pos": "y", "neg": "z", "score": [1]}', "a:1: 'score' is not a list"),
        ('{"query": "x", "pos": "y", "neg": "z", "score": [1, null]}', "a:1: score None is not a number"),
        (
            '{"query": "x", "pos": "y", "neg_1": "z"}\n{"query": "x", "pos": "y", "neg_1": "z", "neg_2": "w"}',
            "a:2: has 'neg_2', which the file's first object has not",
        ),
    ],
)
def test_bad_content_is_named(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        exhaust(Triples([text(tmp_path / "a", content)]))
