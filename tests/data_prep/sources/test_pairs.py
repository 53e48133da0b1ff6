"""Pairs of texts from every kind of file."""

import bz2
import codecs
import gzip
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import zstandard

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import pairing
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.pairing import neighbours, pairs_of, titled
from deepsiam.data_prep.sources.pairs import PAIRS
from deepsiam.data_prep.sources.plain_text import NO_TEXT
from deepsiam.data_prep.sources.registry import SOURCES
from tests.data_prep.collections.raw_formats import write_csv, write_lines, write_parquet, write_tsv
from tests.data_prep.sources.sound import sound
from tests.data_prep.sources.test_tar_stream import packed
from tests.own_code import EXAMPLES

ROWS = [
    {"q": "Who jumps?", "d": "The fox\njumps, and\tthe dog does not.", "page": "a", "other": "1"},
    {"q": 'What is a "fox"?', "d": "A small, red animal.", "page": "a", "other": "2"},
    {"q": "Café?", "d": "It has coffee.", "page": "b", "other": "3"},
]
NAMES = {"query": "q", "document": "d"}


def compressed(compress: Callable[[bytes], bytes]) -> Callable[[Path, list[dict[str, Any]]], Path]:
    return lambda path, rows: write(path, compress(write_lines(path, rows).read_bytes()))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def as_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    write_csv(path, [list(rows[0]), *(list(row.values()) for row in rows)])
    return write(path, codecs.BOM_UTF8 + path.read_bytes())


def as_tsv(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    return write_tsv(path, [[" ".join(cell.split()) for cell in line] for line in lines], "\r\n")


def as_tar(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, packed({f"{number}.json": json.dumps(row).encode() for number, row in enumerate(rows, 1)}))


FILES = {
    "a.jsonl": write_lines,
    "a.jsonl.gz": compressed(gzip.compress),
    "a.jsonl.bz2": compressed(bz2.compress),
    "a.jsonl.zst": compressed(zstandard.compress),
    "a.csv": as_csv,
    "a.tsv": as_tsv,
    "a.parquet": write_parquet,
    "a.tar": as_tar,
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_has_the_same_pairs(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, ROWS)
    texts = [(row["q"], " ".join(row["d"].split())) for row in ROWS]
    for place in (path, tmp_path):
        pairs = sound(PAIRS.documents([place], **NAMES))
        assert [pair.segments for pair in pairs if isinstance(pair, Document)] == texts
        assert len({pair.id for pair in pairs if isinstance(pair, Document)}) == 3
    assert list(PAIRS.documents([path], **NAMES, group="page", id="other")) == [
        Document(f"pairs/{name}/{row['other']}", pair, group=f"pairs/{row['page']}")
        for row, pair in zip(ROWS, texts, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        *((name, "no column") for name in ("a.csv", "a.tsv", "a.parquet")),
        *((name, "line 1: no field") for name in ("a.jsonl", "a.jsonl.gz")),
        ("a.tar", "sample 1: no field"),
    ],
)
def test_a_table_or_first_record_without_a_field_is_refused(name: str, missing: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, ROWS)
    for option in ("query", "document", "group", "id"):
        said = f"^{path}: {missing} 'title', but q, d, page, other; name one of these with --{option}$"
        with pytest.raises(InputError, match=said):
            list(PAIRS.documents([path], **{**NAMES, option: "title"}))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.tar"])
def test_labels_that_would_not_count_are_refused(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, [{**row, "Label": "0"} for row in ROWS])
    with pytest.raises(InputError, match=rf"^{path}: .*its (column|field) 'Label' would not count: .* coll"):
        list(PAIRS.documents([path], **NAMES))
    assert len(list(PAIRS.documents([path], **NAMES, id="Label"))) == 3


def test_a_first_record_may_be_bad_and_blank_texts_are_left_out(tmp_path: Path) -> None:
    rows = ["fox", '{"q": "fox", "d": "dog"}', '{"q": " \\n", "d": "dog"}', '{"q": "fox", "d": ""}']
    bad, pair, *blank = PAIRS.documents([write_lines(tmp_path / "a.jsonl", rows)], **NAMES)
    assert isinstance(bad, Bad)
    assert isinstance(pair, Document)
    assert blank == [Dropped("empty query"), Dropped("empty document")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.tar"])
@pytest.mark.parametrize("field", ["q", "d"])
def test_null_is_bad_and_its_field_is_named(name: str, field: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, [*ROWS, {**ROWS[0], field: None}])
    *_, last = PAIRS.documents([path], **NAMES)
    assert isinstance(last, Bad)
    assert (last.file, last.reason) == (str(path), f"field '{field}' is null")
    assert "4" in last.where


def test_a_row_with_other_cells_than_the_header_is_bad(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'q,d\n"a\nfox",dog\n\nfox\nfox,cat\n')
    assert list(PAIRS.documents([path], **NAMES)) == [
        Document("pairs/a.csv/2", ("a fox", "dog")),
        Bad(str(path), "line 5", "1 cells, the header has 2"),
        Document("pairs/a.csv/6", ("fox", "cat")),
    ]


@pytest.mark.parametrize(("name", "comma"), [("a.csv", b","), ("a.tsv", b"\t")])
def test_a_row_that_is_not_utf_8_is_bad(name: str, comma: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / name, b"q,d,more\nfox,dog,x\nfox,dog,\xe9\nfox,cat,y\n".replace(b",", comma))
    assert list(PAIRS.documents([path], **NAMES)) == [
        Document(f"pairs/{name}/2", ("fox", "dog")),
        Bad(str(path), "line 3", "not UTF-8; convert the file, as iconv does"),
        Document(f"pairs/{name}/4", ("fox", "cat")),
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b'q,d\nfox,dog\n"fox,dog\n', "line 3: not CSV (unexpected end of data), read to "),
        ("a.csv", b"q,d\xe9\nfox,dog\n", "line 1: not UTF-8; convert the file, as iconv does"),
        ("a.csv", b"\n\n", "no column 'q', but none; name one of these with --query"),
        ("a.tsv", b"q\td\tq\nfox\tdog\tcat\n", "two columns 'q', but q, d, q; "),
        ("a.jsonl", b"{}\n", "line 1: no field 'q', but none; "),
        ("a.tsv", "q\td\nfox\tdog\n".encode("utf-16"), "line 1: not UTF-8; convert the file, as iconv does"),
        ("a.csv", b"q,d\rfox,dog\rcat,hen\r", "its lines end with a carriage return alone; convert it, as tr"),
        ("a.tsv", b"q\td\rfox\tdog\r", "its lines end with a carriage return alone; convert it, as tr"),
        ("a.json", b'\xef\xbb\xbf[\n {"q": "fox", "d": "dog"}]', "a JSON array; write each of its objects on a line"),
        ("a.parquet", b"PAR1 and no more", "not a Parquet file"),
    ],
)
def test_a_file_without_its_pairs_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError) as refusal:
        list(PAIRS.documents([path], **NAMES))
    assert str(refusal.value).startswith(f"{path}: {said}")


def test_the_rest_of_a_damaged_tar_is_bad(tmp_path: Path) -> None:
    content = packed({f"{number}.json": json.dumps(ROWS[0]).encode() for number in range(4)})
    path = write(tmp_path / "a.tar", content[:2048] + b"x" * 512 + content[2560:])
    *_, last = PAIRS.documents([path], **NAMES)
    assert isinstance(last, Bad)
    assert last.where == "the rest of the tar"


LEAD = "The fox is a small animal that jumps over the dog."
MORE = "It does so quickly, as far as anybody in the garden has seen."


def article(*segments: str, headings: tuple[int, ...] = (), title: str = "Fox") -> Document:
    return Document("wikipedia/7", segments, headings, title=title, unknown=("{{x}}",), guessed="cp1252")


LONG = f"{'The fox jumps. ' * 110}It ends."
CHINESE = "狐狸是一种小型动物，" * 5 + "它跳过了狗。"
TITLED = [
    (article(LEAD, MORE, "Habitat", "Forests", MORE, LEAD, headings=(2, 3)), [f"{LEAD} {MORE}", f"{MORE} {LEAD}"]),
    (article(LEAD, title=""), []),
    # a list, and a heading without markup
    *((article(LEAD, short, MORE), [LEAD]) for short in ("History.", "Red fox", "A fox of the north, in winter white")),
    (article("Red fox", LEAD), [""]),
    (article(CHINESE), [CHINESE]),
    # between paragraphs
    (article(LEAD, LONG), [LEAD]),
    (article(LONG, LEAD), [LONG]),
]


@pytest.mark.parametrize(("document", "texts"), TITLED)
def test_the_title_has_the_lead_and_a_heading_its_section(document: Document, texts: list[str]) -> None:
    assert list(titled(document)) == list(zip(("Fox", "Fox: Forests"), texts, strict=False))


def test_neighbours_are_of_one_section_and_each_passage_is_in_one_pair() -> None:
    passages = [f"{number} {'word ' * 120}".strip() for number in range(6)]
    book = Document("bookcorpus/a", (*passages[:3], "CHAPTER II", *passages[3:5], LEAD), (3,))
    assert list(neighbours(book)) == [(passages[0], passages[1]), (passages[3], passages[4])]


def test_paragraphs_are_joined_until_they_are_a_passage() -> None:
    half = "word " * (pairing.PASSAGE // 8)
    book = Document("bookcorpus/a", (half.strip(),) * 3)
    ((query, text),) = neighbours(book)
    assert len(text) < pairing.PASSAGE <= len(query)


def test_pairs_are_numbered_and_what_is_counted_is_counted_once() -> None:
    assert list(pairs_of(article(LEAD), [("Fox", LEAD), ("Fox", "Red."), ("Dog", MORE)])) == [
        Document("wikipedia/7/1", ("Fox", LEAD), group="wikipedia/7", guessed="cp1252", unknown=("{{x}}",)),
        Dropped("no text or short"),
        Document("wikipedia/7/3", ("Dog", MORE), group="wikipedia/7"),
    ]
    assert list(pairs_of(article(LEAD), [])) == [Dropped("no pair", ("{{x}}",))]


def test_the_example_reads_what_its_text_says(tmp_path: Path) -> None:
    with patch.dict(SOURCES._values), patch.dict(sys.modules), patch.object(sys, "path", [str(EXAMPLES), *sys.path]):
        import_module("deepsiam_examples.subtitles")
        cues = b"1\r\n00:00:01,000 --> 00:00:02,500\r\nThe fox jumps\r\nover the dog.\r\n\r\n"
        write(tmp_path / "a.srt", cues + b"2\r\n00:00:03,000 --> 00:00:04,000\r\nIt sleeps.\r\n")
        write(tmp_path / "b.srt", b"1\n00:00:01,000 --> 00:00:02,500\n\xff\x81\x00\x98\n")
        write(tmp_path / "c.srt", b"no cue\n")
        write(tmp_path / "d.txt", b"not looked at\n")
        spoken, bad, nothing = SOURCES["subtitles"].documents([tmp_path])
    assert spoken == Document("subtitles/a.srt", ("The fox jumps\nover the dog.", "It sleeps."))
    assert isinstance(bad, Bad)
    assert nothing == NO_TEXT
