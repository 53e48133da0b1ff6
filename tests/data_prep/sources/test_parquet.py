"""Parquet files row by row; other kinds of files are recognised; the bytes read tell the time left."""

import gzip
import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.collections.format import text_lines
from deepsiam.data_prep.common import extras, progress
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import parquet
from deepsiam.data_prep.sources.bytes_read import counter, track_files
from deepsiam.data_prep.sources.compressed import Limits
from deepsiam.data_prep.sources.parquet import parquet_columns, parquet_rows
from deepsiam.data_prep.sources.recognise import not_text
from tests.data_prep.raw import Capture
from tests.data_prep.sources.test_tar_stream import packed

pyarrow = pytest.importorskip("pyarrow", reason="needs the packages of the extra `dumps`")
pyarrow_parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    columns = {"b": ["x", None, "z"], "a": [1, 2, 3]}
    pyarrow_parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=2)
    return tmp_path / "t.parquet"


def test_rows_of_all_row_groups_in_the_order_of_the_wanted_columns(file: Path) -> None:
    assert parquet_columns(file) == ["b", "a"]
    assert list(parquet_rows(file, ["a", "b"])) == [(1, [1, "x"]), (2, [2, None]), (3, [3, "z"])]
    assert list(parquet_rows(file, ["a"])) == [(1, [1]), (2, [2]), (3, [3])]


@pytest.mark.parametrize("lying", [False, True], ids=["a true footer", "a lying footer"])
def test_texts_of_a_file_do_not_fill_the_memory(file: Path, monkeypatch: pytest.MonkeyPatch, lying: bool) -> None:
    monkeypatch.setattr(parquet, "READ_BYTES", 1 << 22)
    table = pyarrow.table({"text": ["x" * (1 << 20)] * 64, "number": range(64)})
    pyarrow_parquet.write_table(table, file)
    del table
    if lying:
        lie(file)
    before, most = pyarrow.total_allocated_bytes(), 0
    for row, (number, text) in parquet_rows(file, ["number", "text"]):
        assert (number, len(text)) == (row - 1, 1 << 20)
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert row == 64
    assert most < 1 << 24


def lie(file: Path) -> None:
    """Let the footer say that a column inflates to a byte, and that its lists have one value."""
    content = file.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    group = pyarrow_parquet.read_metadata(file).row_group(0)
    column = group.column(0)
    of_lists = {column.num_values} if column.num_values > group.num_rows else set()
    for number in {group.total_byte_size, column.total_uncompressed_size, *of_lists}:
        true = varint(2 * number)
        if len(true) > 1:
            footer = content[start:].replace(true, b"\x82" + b"\x80" * (len(true) - 2) + b"\0")
            assert footer != content[start:]
            content = content[:start] + footer
    file.write_bytes(content)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


GROWS = "grows more than 100 times"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["x" * 4000] * 1000, rf"the Parquet data before byte [\d,]+ {GROWS}"),
        ({"x" * 4000: 1000}, rf"the Parquet data before byte [\d,]+ {GROWS}"),
        (["x"] * 40_000, f"row group 1 of its column text {GROWS}, to 320,008"),
        (["x" * (1 << 18)], f"row group 1 of its column text {GROWS}, to 262,"),
        ([[1] * 40_000], f"row group 1 of its column text.list.element {GROWS}, to 320,008"),
        ([["x" * 4000] * 1000], rf"the Parquet data before byte [\d,]+ {GROWS}"),
        ([[{"text": "x" * 4000}] * 1000], rf"the Parquet data before byte [\d,]+ {GROWS}"),
        ([[b"x" * 4000] * 1000, [b"y"]], rf"the Parquet data before byte [\d,]+ {GROWS}"),
    ],
    ids=["text", "dictionary", "runs", "page", "list", "texts of a list", "texts of structs", "bytes of a list"],
)
@pytest.mark.parametrize("lying", [False, True], ids=["a true footer", "a lying footer"])
def test_a_bomb_is_refused(file: Path, column: Any, message: str, lying: bool) -> None:
    if isinstance(column, dict):
        [(text, number)] = column.items()
        column = pyarrow.DictionaryArray.from_arrays([0] * number, [text])
    pyarrow_parquet.write_table(pyarrow.table({"text": column}), file, compression="zstd")
    if lying:
        lie(file)
    with pytest.raises(InputError, match=f"t.parquet: a bomb: {message}"):
        list(parquet_rows(file, ["text"], limits=Limits(ratio=100, over=1 << 16)))
    assert len(list(parquet_rows(file, ["text"]))) == len(column)


def test_a_text_that_a_list_repeats_is_refused_before_it_fills_the_memory(file: Path) -> None:
    pyarrow_parquet.write_table(pyarrow.table({"text": [["x" * (1 << 20)] * 64]}), file, compression="zstd")
    before, pool = pyarrow.default_memory_pool(), pyarrow.proxy_memory_pool(pyarrow.default_memory_pool())
    pyarrow.set_memory_pool(pool)
    try:
        with pytest.raises(InputError, match="a bomb: the Parquet data before byte"):
            list(parquet_rows(file, ["text"], limits=Limits(ratio=100, over=1 << 21)))
    finally:
        pyarrow.set_memory_pool(before)
    assert 0 < pool.max_memory() < 1 << 24


@pytest.mark.parametrize("read", [1 << 27, 1], ids=["at once", "each text by itself"])
def test_texts_in_lists_are_as_pyarrow_reads_them(file: Path, monkeypatch: pytest.MonkeyPatch, read: int) -> None:
    monkeypatch.setattr(parquet, "READ_BYTES", read)
    of_texts = {
        "list": [["a", "b"], None, [], ["a", None]],
        "structs": [[{"t": "x", "n": 1}], [], None, [{"t": None, "n": 2}]],
        "lists": [[["a"], []], [None], None, [["b", "b"]]],
        "in a struct": [{"t": ["a"]}, None, {"t": None}, {"t": ["b"]}],
        "bytes": [[b"a"], [b"b", b"b"], None, []],
    }
    table = pyarrow.table(of_texts).append_column(
        "map", pyarrow.array([[("k", "v")]] * 4, pyarrow.map_(pyarrow.string(), pyarrow.string()))
    )
    table = table.append_column("large", pyarrow.array([["a"]] * 4, pyarrow.large_list(pyarrow.large_string())))
    pyarrow_parquet.write_table(table, file, row_group_size=3)
    read_rows = [values for _, values in parquet_rows(file, table.column_names)]
    assert read_rows == [list(row.values()) for row in table.to_pylist()]


def test_lists_whose_texts_continue_one_another_are_refused(file: Path) -> None:
    keys: dict[str, Any] = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}
    pyarrow_parquet.write_table(pyarrow.table({"text": ["a", "ab"]}), file, **keys)
    assert list(parquet_rows(file, ["text"])) == [(1, ["a"]), (2, ["ab"])]
    pyarrow_parquet.write_table(pyarrow.table({"text": [["a", "ab"]]}), file, **keys)
    with pytest.raises(InputError, match="column text.list.element has texts of lists in the encoding DELTA_BYTE_ARR"):
        list(parquet_rows(file, ["text"]))


def test_damage_is_one_line(file: Path) -> None:
    content = file.read_bytes()
    with pytest.raises(InputError, match="t.parquet: not a table of foxes after row 0: .*fox"):
        list(parquet_rows(file, ["fox"], "a table of foxes"))
    file.write_bytes(content[:-10])
    with pytest.raises(InputError, match="t.parquet: not a Parquet file: "):
        parquet_columns(file)
    for byte, reason in {0: "a page without its sizes", 0x1F: "no header of a page"}.items():
        file.write_bytes(content[:4] + bytes([byte]) + content[5:])
        with pytest.raises(InputError, match=f"t.parquet: not a Parquet file after row 0: {reason}"):
            list(parquet_rows(file, ["b"]))
    read = 0
    for at in range(4, 60):
        for byte in (0, content[at] ^ 1, 127, 255):
            file.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
            with suppress(InputError):
                read += len(list(parquet_rows(file, ["b", "a"])))
    assert read


def test_a_value_that_python_cannot_hold_is_the_reason_why(file: Path) -> None:
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 3, pyarrow.array([b"x", b"\xff", b"z"]).buffers())
    far = pyarrow.array([1, 1 << 60, 3], pyarrow.timestamp("ms"))
    pyarrow_parquet.write_table(pyarrow.table({"text": texts, "when": far}), file)
    read = [values for _, values in parquet_rows(file, ["text", "when"])]
    assert [values[0] for values in (read[0], read[2])] == ["x", "z"]
    assert isinstance(read[1][0], UnicodeDecodeError)
    assert isinstance(read[1][1], OverflowError | ValueError)


def test_the_extra_is_named_where_pyarrow_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=r"t: reading Parquet needs .* pyarrow; run: pip install 'deepsiam\[dumps\]'"):
        parquet_columns(tmp_path / "t")


def zipped(*names: str, content: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (rb"{\rtf1\ansi A fox.}", "RTF, not text; save it as plain text"),
        (b"<!DOCTYPE html>\n<html>", "HTML, not text; save"),
        (b'<?xml version="1.0"?>\n<!-- a --><!-- b -->\n<!DOCTYPE HTML PUBLIC>', "HTML"),
        ("<html>".encode("utf-16"), "HTML"),
        (b'<?xml version="1.0"?><TEI>', "XML"),
        (b"%PDF-1.7\n%\xe2", "PDF, not text; convert it, as pdftotext does"),
        (b"%!PS-Adobe-3.0\n", "PostScript"),
        (b"\x1b%-12345X@PJL JOB\n@PJL ENTER\n%!PS", "PostScript"),
        (zipped("mimetype", content="application/epub+zip"), "an e-book (EPUB)"),
        (zipped("[Content_Types].xml", "word/document.xml"), "an Office document (.docx)"),
        (zipped("fox.txt"), "a ZIP archive, not text; unpack it"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "an Office document (.doc)"),
        (b"Fox".ljust(60, b"\0") + b"BOOKMOBI", "an e-book (Mobipocket)"),
        (gzip.compress(b"A fox.", mtime=0), "compressed, not text; decompress it"),
        (packed({"fox.txt": b"A fox."}), "a tar, not text; give it the ending .tar"),
        (b"SQLite format 3\0", "a binary file"),
        (b"<!---->" * 500, ""),
        (b"PK is short for a kick.", ""),
        (b"%PDF", ""),
    ],
)
def test_files_of_other_kinds_are_recognised(content: bytes, expected: str) -> None:
    assert not_text(content).startswith(expected)
    assert bool(not_text(content)) == bool(expected)


def test_bytes_tell_the_time_left(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PERIOD", 0)
    files = [tmp_path / "a.txt", tmp_path / "b.txt.gz"]
    files[0].write_bytes(b"%9999d\n" % 1 * 300)  # 3 MB: several reads
    files[1].write_bytes(gzip.compress(b"x\n" * 100))
    list(track_files((line for file in files for line in text_lines(file)), "corpus", "texts", files))
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("corpus: 1.0/3.0 MB, ")
    assert first.endswith(" left; 1 texts")
    assert last.startswith("corpus: 3.0/3.0 MB, ")
    assert last.endswith(" 0 s left; 400 texts")


def test_rows_of_parquet_count_their_share_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow_parquet.write_table(pyarrow.table({"text": [f"text {i}" for i in range(1000)]}), path, row_group_size=600)
    before = counter.bytes
    read = [counter.bytes - before for _ in parquet_rows(path, ["text"])]
    assert read == sorted(read)
    assert read[0] < 100
    assert 0.5 * path.stat().st_size < read[-1] < path.stat().st_size
