"""BEIR's folders: titles, qrels and pools; every bad line is reported."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.collections.collection import Collection
from data_prep.collections.formats.beir import Beir
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.beir_folder import HEADER, write_beir


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    return write_beir(tmp_path / "beir")


def made(folder: Path, tokenizer: Tokenizer, strict: bool = False) -> Collection:
    return build("beir", [folder], folder, tokenizer, strict=strict)


def test_texts_and_judgements_are_those_of_the_folder(beir: Path, small: Tokenizer) -> None:
    opened = made(beir, small)
    assert list(opened.corpus.ids) == ["a", "b", "c"]
    assert list(opened.corpus.texts()) == ["Foxes The quick brown fox.", "", "Dogs sleep."]
    assert list(opened.queries.texts()) == ["fox", "dog sleeps"]
    assert opened.splits() == ["test"]
    assert opened.qrels("test") == {"1": {"a": 1}, "2": {"c": 2, "b": 0}}


def test_a_pool_is_its_file_or_the_whole_corpus(beir: Path, small: Tokenizer) -> None:
    assert made(beir, small).pool("test").tolist() == [0, 1, 2]
    (beir / "pools").mkdir()
    (beir / "pools" / "test.txt").write_text("c\na\n")
    assert made(beir, small).pool("test").tolist() == [2, 0]
    (beir / "pools" / "test.txt").write_text("c\nx\n")
    assert made(beir, small).pool("test").tolist() == [2]
    with pytest.raises(InputError, match="test.txt:2: 'x' is not among the documents"):
        made(beir, small, strict=True)
    (beir / "pools" / "test.txt").write_text("c\na\nc\n")
    with pytest.raises(InputError, match="test.txt:3: document 'c' is repeated"):
        made(beir, small)


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        ("corpus.jsonl", "{", "corpus.jsonl:4: not JSON"),
        ("corpus.jsonl", "[1]", "corpus.jsonl:4: not a JSON object"),
        ("corpus.jsonl", '{"text": "x"}', "corpus.jsonl:4: '_id' is missing or not a string"),
        ("corpus.jsonl", '{"_id": 7, "text": "x"}', "corpus.jsonl:4: '_id' is missing or not a string"),
        ("corpus.jsonl", '{"_id": "x\\ty", "text": "x"}', "corpus.jsonl:4: _id .* contains a tab"),
        ("corpus.jsonl", '{"_id": "x", "document_text": "y"}', "corpus.jsonl:4: 'text' is missing"),
        ("corpus.jsonl", '{"_id": "x", "title": 3, "text": ""}', "corpus.jsonl:4: 'title' is not a string"),
        ("corpus.jsonl", '{"_id": "b", "text": "x"}', "corpus.jsonl:4: id 'b' is already on line 2"),
        ("queries.jsonl", '{"_id": "1", "text": "x"}', "queries.jsonl:3: id '1' is already on line 1"),
        ("corpus.jsonl", '{"_id": "\\ud800", "text": "x"}', "corpus.jsonl:4: has half a character"),
        ("corpus.jsonl", '{"_id": "x", "text": "\\ud800"}', "corpus.jsonl:4: has half a character"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_left_behind(
    beir: Path, small: Tokenizer, file: str, line: str, reason: str
) -> None:
    with open(beir / file, "a") as stream:
        stream.write(line + "\n")
    before = sorted(beir.rglob("*"))
    with pytest.raises(InputError, match=reason):
        made(beir, small)
    assert sorted(beir.rglob("*")) == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("1\ta\t1\n", "test.tsv:1: the first line must be the header"),
        (HEADER + "1\ta\n", "test.tsv:2: 2 columns"),
        (HEADER + "1\ta\t1\n9\ta\t1\n", "test.tsv:3: '9' is not among the queries"),
        (HEADER + "1\tz\t1\n", "test.tsv:2: 'z' is not among the documents"),
        (HEADER + "01\ta\t1\n", "test.tsv:2: '01' is not among the queries; '1' is"),
        (HEADER + "1\ta\t1.5\n", "test.tsv:2: score '1.5' is not a whole number"),
        (HEADER + f"1\ta\t{'9' * 39}\n", "test.tsv:2: score 1e\\+39 is not a number that fp32 can hold"),
        (HEADER + f"1\ta\t{'9' * 5000}\n", "test.tsv:2: score '9{39} is not a whole number"),
        (HEADER + "1\ta\tnan\n", "test.tsv:2: score 'nan' is not a whole number"),
        (HEADER + "1\ta\t1\n1\ta\t0\n", "test.tsv:3: .* have another score on an earlier line"),
        (HEADER, "test: the input has no judgements"),
        ("", "test.tsv: is empty"),
        ("\udcff", "test.tsv:1: not UTF-8"),
    ],
)
def test_bad_judgements_are_named(beir: Path, small: Tokenizer, content: str, reason: str) -> None:
    (beir / "qrels" / "test.tsv").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=reason):
        made(beir, small, strict=True)


def test_windows_line_ends_blank_lines_and_byte_order_marks_are_read(beir: Path, small: Tokenizer) -> None:
    for name in ("qrels/test.tsv", "corpus.jsonl", "queries.jsonl"):
        content = (beir / name).read_bytes().replace(b"\n", b"\r\n")
        (beir / name).write_bytes(b"\xef\xbb\xbf" + content + b"\r\n")
    opened = made(beir, small)
    assert opened.qrels("test") == {"1": {"a": 1}, "2": {"c": 2, "b": 0}}
    assert opened.corpus.text(2) == "Dogs sleep."


def test_queries_without_text_are_counted(beir: Path, small: Tokenizer) -> None:
    with open(beir / "queries.jsonl", "a") as stream:
        stream.write('{"_id": "3", "text": " "}\n{"_id": "4", "text": ""}\n')
    (beir / "qrels" / "test.tsv").write_text(HEADER + "1\ta\t1\n4\tc\t1\n")
    assert made(beir, small).manifest["remarks"] == [
        f"2 of 4 queries have no text (the first: {beir / 'queries.jsonl'}:3)",
        "1 of 3 documents have no text (the first: b)",
    ]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst"])
def test_every_file_may_be_compressed(beir: Path, small: Tokenizer, ending: str) -> None:
    (beir / "pools").mkdir()
    (beir / "pools" / "test.txt").write_text("c\na\nb\n")
    plain = made(beir, small)
    files = [path.relative_to(beir) for path in Beir([beir]).files()]
    for file in files:
        (beir / f"{file}{ending}").write_bytes(squeeze(ending, (beir / file).read_bytes()))
    assert [path.relative_to(beir) for path in Beir([beir]).files()] == files  # the plain ones
    for file in files:
        (beir / file).unlink()
    with pytest.raises(InputError, match="changed since tokenising"):
        Collection.open(beir)
    opened = made(beir, small)
    assert {record["file"] for record in opened.manifest["inputs"]} == {f"{file}{ending}" for file in files}
    assert list(Collection.open(beir).corpus.texts()) == list(plain.corpus.texts())
    assert opened.qrels("test") == {"1": {"a": 1}, "2": {"c": 2, "b": 0}}
    assert opened.pool("test").tolist() == [2, 0, 1]


def squeeze(ending: str, data: bytes) -> bytes:
    if ending == ".zst":
        return pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    return {".gz": gzip, ".xz": lzma, ".bz2": bz2}[ending].compress(data)


def test_missing_parts_are_named(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        made(tmp_path / "nowhere", small)
    assert not (tmp_path / "nowhere").exists()
    (beir / "queries.jsonl").unlink()
    with pytest.raises(InputError, match="queries.jsonl: no such file"):
        made(beir, small)
    (beir / "queries.jsonl").write_text("\n")
    with pytest.raises(InputError, match="queries: the input contains no texts"):
        made(beir, small)
    write_beir(beir)
    (beir / "qrels" / "test.tsv").unlink()
    with pytest.raises(InputError, match="no SPLIT.tsv"):
        made(beir, small)


def test_a_line_of_json_that_is_too_deep_is_named(beir: Path, small: Tokenizer) -> None:
    with open(beir / "corpus.jsonl", "a") as stream:
        stream.write(json.dumps({"_id": "x", "text": ""})[:-1] + ', "more": ' + "[" * 100_000 + "\n")
    with pytest.raises(InputError, match="corpus.jsonl:4: not JSON"):
        made(beir, small)
