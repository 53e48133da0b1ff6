"""Pairs in every kind of table: scores, several documents of a query; every bad row is reported."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.pairs import Pairs
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices, exhaust
from tests.samples import DATA, needs

FOUND = [("fox", {"a red fox": 4.5, "a dog": 0.0}), ("dog", {"a dog": 5.0})]
RECORDS = [
    {"id": 1, "sentence1": "fox", "sentence2": "a red fox", "score": 4.5},
    {"id": 2, "sentence1": "dog", "sentence2": "a dog", "score": 5},
    {"id": 3, "sentence1": "fox", "sentence2": "a dog", "score": 0},
]


def parquet(file: Path, records: list[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the packages of the extra `dumps`")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(records), file, row_group_size=2)
    return file


def text(file: Path, content: str) -> Path:
    file.write_bytes(content.encode())
    return file


def table(file: Path, separator: str, line_end: str = "\n") -> Path:
    rows = [RECORDS[0].keys(), *(record.values() for record in RECORDS)]
    return text(file, "".join(separator.join(map(str, row)) + line_end for row in rows))


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json", "parquet"])
def test_every_kind_of_table(tmp_path: Path, small: Tokenizer, kind: str) -> None:
    file = tmp_path / f"train.{kind}"
    match kind:
        case "tsv":
            table(file, "\t", "\r\n")
        case "csv":
            table(file, ",")
        case "jsonl":
            text(file, "\ufeff" + "".join(json.dumps(record) + "\r\n" for record in RECORDS))
        case "json":
            text(file, json.dumps(RECORDS, indent=1))
        case _:
            parquet(file, RECORDS)
    opened = build("pairs", [file], tmp_path / "out", small)
    assert choices(opened, "train") == FOUND
    assert opened.manifest["remarks"] == []
    if kind != "parquet":
        zipped = tmp_path / f"dev.{kind}.gz"
        zipped.write_bytes(gzip.compress(file.read_bytes()))
        assert [row[:3] for row in Pairs([zipped]).groups("dev")] == [row[:3] for row in Pairs([file]).groups("train")]


def test_a_pair_without_a_score_is_positive(tmp_path: Path, small: Tokenizer) -> None:
    file = text(tmp_path / "a.tsv", 'answer\tquestion\n"a" red fox\tfox\na dog\tfox\na dog\tfox\n')  # found by name
    opened = build("pairs", [file], tmp_path / "out", small)
    assert choices(opened, "train") == [("fox", {'"a" red fox': 1, "a dog": 1})]


def test_the_higher_score_of_a_repeated_pair_counts(tmp_path: Path, small: Tokenizer) -> None:
    file = text(tmp_path / "a.csv", 'Query,Document,Label\nfox,"a, b",1\nfox,"a, b",0\n')
    assert choices(build("pairs", [file], tmp_path / "out", small), "train") == [("fox", {"a, b": 1})]


def test_unknown_names_are_taken_in_their_order_with_a_remark(tmp_path: Path, small: Tokenizer) -> None:
    file = text(tmp_path / "a.jsonl", '{"title": "fox", "body": "a red fox", "idx": 3}\n')
    opened = build("pairs", [file], tmp_path / "out", small)
    assert choices(opened, "train") == [("fox", {"a red fox": 1})]
    assert opened.manifest["remarks"] == [
        f"{file}: by the order of its columns, 'title' is the query, 'body' the document"
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("fox\ta red fox\n", "a.tsv: its columns are fox, a red fox; name them query, document, and score or label"),
        ("query\n", "a.tsv: its columns are query; name them"),
        ("query\tdocument\tnegative\nx\ty\tz\n", "a.tsv: its columns .* are of the format triples"),
        ("document\ttitle\nx\ty\n", "a.tsv: its columns are document, title; name them"),  # which one is the query?
        ("query\tdocument\tscore\tlabel\nx\ty\t1\t1\n", "a.tsv: its columns are query, document, score, label"),
        ("query\tquery\nx\ty\n", "a.tsv:1: two columns are named 'query'; is this line a header"),
        ("query\tdocument\nx\ty\nx\n", "a.tsv:3: 1 column, the header has 2"),
        ("query\tdocument\nx\ty\tz\n", "a.tsv:2: 3 columns, the header has 2"),
        ("query\tdocument\n\tx\n", "a.tsv:2: 'query' is empty"),
        ("query\tdocument\nx\t \n", "a.tsv:2: 'document' is empty"),
        ("query\tdocument\tscore\nx\ty\tgood\n", "a.tsv:2: score 'good' is not a number"),
        ("query\tdocument\tscore\nx\ty\tnan\n", "a.tsv:2: score nan is not a number that fp32 can hold"),
        ("", "a.tsv: is empty"),
        ('{"query": "x", "document": 7}\n', "a.tsv:1: 'document' is missing or not a string"),
        ('{"query": "x", "document": "y"}\n{"query": "x"}\n', "a.tsv:2: 'document' is missing"),
        ('{"query": "x", "document": "y", "score": null}\n', "a.tsv:1: score None is not a number"),
        ('[{"query": "x", "document": "y"},\n {"query": "x"}]', "a.tsv:2: element 2: 'document' is missing"),
        ("[]", "a.tsv: its columns are none"),
        ('{"query": "x", "document": "y"}\n{"query": "x", "document": "z", "Score": 0}', "a.tsv:2: has 'Score', which"),
        ('[{"query": "x", "score": 1, "text": "y"},\n{"query": "x", "label": 0}]', "a.tsv:2: element 2: has 'label'"),
        ('{"query": "x", "document": "y"}\n{"query": "x", "document": "z", "neg": "y"}', "a.tsv:2: has 'neg', which"),
    ],
)
def test_bad_content_is_named(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        exhaust(Pairs([text(tmp_path / "a.tsv", content)]))


def test_a_bad_row_of_csv_and_of_parquet_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a.csv:2: not CSV .*on line 3; does a quote"):
        exhaust(Pairs([text(tmp_path / "a.csv", 'query,document\nx,"y\nz')]))
    bad = [*RECORDS[:2], RECORDS[2] | {"sentence2": None}]
    with pytest.raises(InputError, match="a.parquet: row 3: 'sentence2' is missing or not a string"):
        exhaust(Pairs([parquet(tmp_path / "a.parquet", bad)]))


def test_other_keys_of_later_objects_are_not_read(tmp_path: Path) -> None:
    rows = ['{"query": "x", "document": "y"}', '{"query": "x", "document": "z", "id": 3, "source": "web"}']
    reader = Pairs([text(tmp_path / "a.jsonl", "\n".join(rows))])
    assert [text.parts for text in reader.corpus()] == [["y"], ["z"]]


def test_a_split_with_and_without_scores_is_refused(tmp_path: Path) -> None:
    files = [table(tmp_path / "a.tsv", "\t"), text(tmp_path / "b.tsv", "query\tdocument\nx\ty\n")]
    with pytest.raises(InputError, match="split train: .*a.tsv .*b.tsv"):
        Pairs(files)
    assert Pairs([files[0], Path(f"dev={files[1]}")]).splits() == ["train", "dev"]


def test_a_table_with_a_header_only_is_refused(tmp_path: Path, small: Tokenizer) -> None:
    with pytest.raises(InputError, match="the input contains no texts"):
        build("pairs", [text(tmp_path / "a.tsv", "query\tdocument\n")], tmp_path / "out", small)


@pytest.mark.slow
@needs("other")
def test_real_pairs_with_scores() -> None:
    reader = Pairs([DATA / "other" / "sts_train.jsonl"])
    rows = list(reader.groups("train"))
    assert len(rows) == 3750
    assert {min(row.labels) for row in rows} >= {0.0, 2.5, 5.0}
    assert all(0 <= label <= 5 for row in rows for label in row.labels)
