"""Tables of every kind are read alike; further cases are in the tests of pairs."""

import json
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.files.table import table_columns, table_kind, table_rows
from deepsiam.data_prep.collections.format import Where
from deepsiam.data_prep.common.errors import InputError
from tests.data_prep.collections.raw_formats import write_parquet

ROWS = [{"a": "x", "b": 'the "y"'}, {"a": "z", "b": "w"}]


@pytest.mark.parametrize(
    ("name", "content", "kind", "first"),
    [
        ("t.tsv", '\ufeffa\tb\r\nx\tthe "y"\r\n\r\nz\tw', "tsv", 2),
        ("t.txt", 'a\tb\nx\tthe "y"\nz\tw\n', "tsv", 2),
        ("t.csv", 'a,b\nx,"the ""y"""\nz,w\n', "csv", 2),
        ("T.CSV", 'a,b\nx,"the ""y"""\nz,w\n', "csv", 2),
        ("t.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS), "json", 1),
        ("t.json", " \n" + json.dumps(ROWS), "json", 2),
    ],
)
def test_rows_have_their_lines(tmp_path: Path, name: str, content: str, kind: str, first: int) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode())
    assert table_kind(file) == kind
    assert table_columns(file) == ["a", "b"]
    assert [row for _, row in table_rows(file)] == ROWS
    assert next(table_rows(file))[0].line == first


def test_a_row_of_csv_has_the_line_that_it_begins_on(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a,b\nx,"1\n2\n3"\ny,4\n')
    assert [(where.line, row["a"]) for where, row in table_rows(tmp_path / "t.csv")] == [(2, "x"), (5, "y")]
    (tmp_path / "t.csv").write_text('a,b\nw,0\nx,"1\n2,3\n\ny,4\n')
    with pytest.raises(InputError, match=r"t.csv:3: not CSV \(.*\), read to .*t.csv:6; does a quote of this row not"):
        list(table_rows(tmp_path / "t.csv"))


def test_a_quoted_cell_keeps_its_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a,b\n\nx,"1\n\n2"\n  \ny,4\n')
    rows = [(where.line, row["b"]) for where, row in table_rows(tmp_path / "t.csv")]
    assert rows == [(3, "1\n\n2"), (7, "4")]


def test_rows_of_parquet_have_numbers_and_any_values(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": [1.5]}, {"a": None, "b": []}, {"a": "y", "b": None}]
    file = write_parquet(tmp_path / "t", rows, row_group_size=2)
    assert list(table_rows(file)) == [(Where(file, 0, f"row {number}"), row) for number, row in enumerate(rows, 1)]


def test_rows_that_are_cut_short(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a\tb\tc\nx\ty\n")
    assert [row for _, row in table_rows(tmp_path / "t", cut_short=True)] == [{"a": "x", "b": "y"}]
    with pytest.raises(InputError, match="t:2: 2 columns, the header has 3"):
        list(table_rows(tmp_path / "t"))
    (tmp_path / "t").write_text("a\nx\ty\n")
    with pytest.raises(InputError, match="t:2: 2 columns, the header has 1"):
        list(table_rows(tmp_path / "t", cut_short=True))
