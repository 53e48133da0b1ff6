"""Pairs of texts from every kind of file."""

import bz2
import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.pairs import PAIRS
from tests.data_prep.sources.sound import sound
from tests.data_prep.sources.test_tar_stream import packed

ROWS = [
    {"q": "Who jumps?", "d": "The fox\njumps, and\tthe dog does not.", "page": "a", "other": "1"},
    {"q": 'What is a "fox"?', "d": "A small, red animal.", "page": "a", "other": "2"},
    {"q": "Café?", "d": "It has coffee.", "page": "b", "other": "3"},
]
TEXTS = [
    ("Who jumps?", "The fox jumps, and the dog does not."),
    ('What is a "fox"?', "A small, red animal."),
    ("Café?", "It has coffee."),
]
NAMES = {"query": "q", "document": "d"}


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def compressed(compress: Callable[[bytes], bytes]) -> Callable[[Path, list[dict[str, Any]]], Path]:
    def write(path: Path, rows: list[dict[str, Any]]) -> Path:
        path.write_bytes(compress(jsonl(path, rows).read_bytes()))
        return path

    return write


def as_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_tsv(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [rows[0].keys(), *([value.replace("\n", " ").replace("\t", " ") for value in row.values()] for row in rows)]
    path.write_text("".join("\t".join(line) + "\r\n" for line in lines))
    return path


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def as_tar(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(packed({f"{number}.json": json.dumps(row).encode() for number, row in enumerate(rows, 1)}))
    return path


FILES = {
    "a.jsonl": jsonl,
    "a.jsonl.gz": compressed(gzip.compress),
    "a.jsonl.bz2": compressed(bz2.compress),
    "a.jsonl.zst": compressed(zstandard.compress),
    "a.csv": as_csv,
    "a.tsv": as_tsv,
    "a.parquet": as_parquet,
    "a.tar": as_tar,
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_has_the_same_pairs(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, ROWS)
    for place in (path, tmp_path):
        pairs = sound(PAIRS.documents([place], **NAMES))
        assert [pair.segments for pair in pairs if isinstance(pair, Document)] == TEXTS
        assert len({pair.id for pair in pairs if isinstance(pair, Document)}) == 3
    pairs = sound(PAIRS.documents([path], **NAMES, group="page", id="other"))
    assert [(pair.id, pair.group) for pair in pairs if isinstance(pair, Document)] == [
        (f"pairs/{name}/1", "pairs/a"),
        (f"pairs/{name}/2", "pairs/a"),
        (f"pairs/{name}/3", "pairs/b"),
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_a_table_without_a_column_is_refused_with_its_columns(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, ROWS)
    for option in ("query", "document", "group", "id"):
        said = f"^{path}: no column 'title', but q, d, page, other; name one of these with --{option}$"
        with pytest.raises(InputError, match=said):
            list(PAIRS.documents([path], **{**NAMES, option: "title"}))


@pytest.mark.parametrize("name", FILES)
def test_labels_that_would_not_count_are_refused(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, [{**row, "Label": "0"} for row in ROWS])
    with pytest.raises(InputError, match=rf"^{path}: .*its (column|field) 'Label' would not count: .* coll"):
        list(PAIRS.documents([path], **NAMES))
    assert len(list(PAIRS.documents([path], **NAMES, id="Label"))) == 3


@pytest.mark.parametrize(("name", "where"), [("a.jsonl", "line 1"), ("a.jsonl.gz", "line 1"), ("a.tar", "sample 1")])
def test_a_first_record_without_a_field_is_refused_with_its_fields(name: str, where: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, ROWS)
    for option in ("query", "document", "group", "id"):
        said = f"^{path}: {where}: no field 'title', but q, d, page, other; name one of these with --{option}$"
        with pytest.raises(InputError, match=said):
            list(PAIRS.documents([path], **{**NAMES, option: "title"}))


def test_a_first_record_that_is_bad_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('fox\n{"q": "fox", "d": "dog"}\n')
    bad, pair = PAIRS.documents([path], **NAMES)
    assert isinstance(bad, Bad)
    assert isinstance(pair, Document)
    path.write_text("{}\n")
    with pytest.raises(InputError, match="line 1: no field 'q', but none;"):
        list(PAIRS.documents([path], **NAMES))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("q\td\tq\nfox\tdog\tcat\n")
    with pytest.raises(InputError, match="a.tsv: two columns 'q', but q, d, q;"):
        list(PAIRS.documents([tmp_path / "a.tsv"], **NAMES))


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.tar"])
@pytest.mark.parametrize(
    ("values", "reason"),
    [([None, "dog"], "field 'q' is null"), (["fox", None], "field 'd' is null")],
)
def test_null_is_bad_and_its_field_is_named(name: str, values: list[str | None], reason: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, [*ROWS, {"q": values[0], "d": values[1], "page": "a", "other": "4"}])
    *_, last = PAIRS.documents([path], **NAMES)
    assert isinstance(last, Bad)
    assert (last.file, last.reason) == (str(path), reason)
    assert "4" in last.where


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"q": "fox"}', "field 'd' is missing or not a string"),
        ('{"q": "fox", "d": ["dog"]}', "field 'd' is missing or not a string"),
        ('{"q": "fox", "d": "\\ud83e"}', "half of a surrogate pair, which is not a character"),
        ('["fox", "dog"]', "not a JSON object"),
        ('{"q": " \\n", "d": "dog"}', Dropped("empty query")),
        ('{"q": "fox", "d": ""}', Dropped("empty document")),
    ],
)
def test_other_lines_are_bad_and_blank_texts_are_left_out(line: str, record: str | Dropped, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"q": "fox", "d": "dog"}\n' + f"{line}\n")
    bad = Bad(str(path), "line 2", record) if isinstance(record, str) else record
    assert list(PAIRS.documents([path], **NAMES))[1:] == [bad]


def test_a_row_with_other_cells_than_the_header_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('q,d\n"a\nfox",dog\n\nfox\nfox,cat\n')
    first, bad, last = PAIRS.documents([path], **NAMES)
    assert first == Document("pairs/a.csv/2", ("a fox", "dog"))
    assert bad == Bad(str(path), "line 5", "1 cells, the header has 2")
    assert last == Document("pairs/a.csv/6", ("fox", "cat"))


@pytest.mark.parametrize(("name", "comma"), [("a.csv", ","), ("a.tsv", "\t")])
def test_a_row_that_is_not_utf_8_is_bad(name: str, comma: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = ("q", "d", "more"), ("fox", "dog", "x"), ("fox", "dog", "\udce9"), ("fox", "cat", "y")
    path.write_text("".join(comma.join(row) + "\n" for row in rows), errors="surrogateescape")
    first, bad, last = PAIRS.documents([path], **NAMES)
    assert bad == Bad(str(path), "line 3", "not UTF-8; convert the file, as iconv does")
    assert [first, last] == [Document(f"pairs/{name}/{n}", ("fox", end)) for n, end in ((2, "dog"), (4, "cat"))]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b'q,d\nfox,dog\n"fox,dog\n', "line 3: not CSV (unexpected end of data), read to "),
        ("a.csv", b"q,d\xe9\nfox,dog\n", "line 1: not UTF-8; convert the file, as iconv does"),
        ("a.csv", b"\n\n", "no column 'q', but none; name one of these with --query"),
        ("a.tsv", "q\td\nfox\tdog\n".encode("utf-16"), "line 1: not UTF-8; convert the file, as iconv does"),
        ("a.csv", b"q,d\rfox,dog\rcat,hen\r", "its lines end with a carriage return alone; convert it, as tr"),
        ("a.tsv", b"q\td\rfox\tdog\r", "its lines end with a carriage return alone; convert it, as tr"),
        ("a.json", b'\xef\xbb\xbf[\n {"q": "fox", "d": "dog"}]', "a JSON array; write each of its objects on a line"),
        ("a.parquet", b"PAR1 and no more", "not a Parquet file"),
    ],
)
def test_a_damaged_table_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as refusal:
        list(PAIRS.documents([path], **NAMES))
    assert str(refusal.value).startswith(f"{path}: {said}")


def test_the_rest_of_a_damaged_tar_is_bad(tmp_path: Path) -> None:
    content = packed({f"{number}.json": json.dumps(ROWS[0]).encode() for number in range(4)})
    path = tmp_path / "a.tar"
    path.write_bytes(content[:2048] + b"x" * 512 + content[2560:])
    *_, last = PAIRS.documents([path], **NAMES)
    assert isinstance(last, Bad)
    assert last.where == "the rest of the tar"
