"""Parquet files row by row; damage and a missing package each give one clear line."""

from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common import extras
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import parquet
from deepsiam.data_prep.sources.compressed import Limits
from deepsiam.data_prep.sources.parquet import parquet_columns, parquet_rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the packages of the extra `dumps`")
    from pyarrow import parquet

    columns = {"b": ["x", None, "z"], "a": [1, 2, 3]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=2)
    return tmp_path / "t.parquet"


def test_rows_of_all_row_groups_in_the_order_of_the_wanted_columns(file: Path) -> None:
    assert parquet_columns(file) == ["b", "a"]
    assert list(parquet_rows(file, ["a", "b"])) == [(1, [1, "x"]), (2, [2, None]), (3, [3, "z"])]
    assert list(parquet_rows(file, ["a"])) == [(1, [1]), (2, [2]), (3, [3])]


def test_texts_that_the_file_has_once_do_not_fill_the_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    from pyarrow import parquet as pyarrow_parquet

    monkeypatch.setattr(parquet, "READ", 1 << 22)
    table = pyarrow.table({"text": ["x" * (1 << 20)] * 64, "number": range(64)})
    pyarrow_parquet.write_table(table, file)
    del table
    before, most = pyarrow.total_allocated_bytes(), 0
    for row, (number, text) in parquet_rows(file, ["number", "text"]):
        assert (number, len(text)) == (row - 1, 1 << 20)
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert row == 64
    assert most < 1 << 24


GROWS = "grows more than 100 times"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["x" * 4000] * 1000, rf"the Parquet data before byte [\d,]+ {GROWS}"),
        ({"x" * 4000: 1000}, rf"the Parquet data before byte [\d,]+ {GROWS}"),
        (["x"] * 40_000, rf"the Parquet data before byte [\d,]+ {GROWS}"),
        (["x" * (1 << 18)], f"row group 1 of its column text {GROWS}, to 262,"),
        ([[1] * 40_000], f"row group 1 of its column text.list.element {GROWS}, to 320,000"),
    ],
    ids=["a text", "a dictionary", "runs", "a page", "a list"],
)
def test_a_bomb_is_refused(file: Path, column: Any, message: str) -> None:
    import pyarrow
    from pyarrow import parquet as pyarrow_parquet

    if isinstance(column, dict):
        [(text, number)] = column.items()
        column = pyarrow.DictionaryArray.from_arrays([0] * number, [text])
    pyarrow_parquet.write_table(pyarrow.table({"text": column}), file, compression="zstd")
    with pytest.raises(InputError, match=f"t.parquet: a bomb: {message}"):
        list(parquet_rows(file, ["text"], limits=Limits(ratio=100, over=1 << 16)))
    assert len(list(parquet_rows(file, ["text"]))) == len(column)


def test_a_value_that_python_cannot_hold_is_the_reason_why(file: Path) -> None:
    import pyarrow
    from pyarrow import parquet as pyarrow_parquet

    texts = pyarrow.Array.from_buffers(pyarrow.string(), 3, pyarrow.array([b"x", b"\xff", b"z"]).buffers())
    far = pyarrow.array([1, 1 << 60, 3], pyarrow.timestamp("ms"))
    pyarrow_parquet.write_table(pyarrow.table({"text": texts, "when": far}), file)
    read = [values for _, values in parquet_rows(file, ["text", "when"])]
    assert [values[0] for values in (read[0], read[2])] == ["x", "z"]
    assert isinstance(read[1][0], UnicodeDecodeError)
    assert isinstance(read[1][1], OverflowError | ValueError)


def test_what_cannot_be_read_is_named(file: Path) -> None:
    with pytest.raises(InputError, match="t.parquet: not a table of foxes after row 0: .*fox"):
        list(parquet_rows(file, ["fox"], "a table of foxes"))
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(InputError, match="t.parquet: not a Parquet file: "):
        parquet_columns(file)


def test_the_extra_is_named_where_pyarrow_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=r"t: reading Parquet needs .* pyarrow; run: pip install 'deepsiam\[dumps\]'"):
        parquet_columns(tmp_path / "t")
