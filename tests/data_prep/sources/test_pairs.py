"""Pairs of texts from every kind of file."""

import bz2
import csv
import gzip
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.sources import pairing
from deepsiam.data_prep.sources.bookcorpus import BOOKCORPUS
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.pairing import neighbours, pairs_of, titled
from deepsiam.data_prep.sources.pairs import PAIRS
from deepsiam.data_prep.sources.plain_text import NO_TEXT, TEXT
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.sources.source import APPLE_DOUBLE, OF_A_MAC, Source
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA
from deepsiam.registry import import_named
from tests.data_prep.collections.raw_formats import write_lines, write_parquet
from tests.data_prep.sources.sound import sound
from tests.data_prep.sources.test_tar_stream import packed
from tests.own_code import EXAMPLES, own_code

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


def compressed(compress: Callable[[bytes], bytes]) -> Callable[[Path, list[dict[str, Any]]], Path]:
    def write(path: Path, rows: list[dict[str, Any]]) -> Path:
        path.write_bytes(compress(write_lines(path, rows).read_bytes()))
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


def as_tar(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(packed({f"{number}.json": json.dumps(row).encode() for number, row in enumerate(rows, 1)}))
    return path


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


@pytest.mark.parametrize("name", FILES)
def test_labels_that_would_not_count_are_refused(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name, [{**row, "Label": "0"} for row in ROWS])
    with pytest.raises(InputError, match=rf"^{path}: .*its (column|field) 'Label' would not count: .* coll"):
        list(PAIRS.documents([path], **NAMES))
    assert len(list(PAIRS.documents([path], **NAMES, id="Label"))) == 3


def test_a_first_record_that_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('fox\n{"q": "fox", "d": "dog"}\n')
    bad, pair = PAIRS.documents([path], **NAMES)
    assert isinstance(bad, Bad)
    assert isinstance(pair, Document)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.tar"])
@pytest.mark.parametrize(
    ("values", "reason"), [([None, "dog"], "field 'q' is null"), (["fox", None], "field 'd' is null")]
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


LEAD = "The fox is a small animal that jumps over the dog."
MORE = "It does so quickly, as far as anybody in the garden has seen."


def article(*segments: str, headings: tuple[int, ...] = (), title: str = "Fox") -> Document:
    return Document("wikipedia/7", segments, headings, title=title, unknown=("{{x}}",), guessed="cp1252")


def test_the_title_has_the_lead_and_a_heading_its_section() -> None:
    document = article(LEAD, MORE, "Habitat", "Forests", MORE, LEAD, headings=(2, 3))
    assert list(titled(document)) == [("Fox", f"{LEAD} {MORE}"), ("Fox: Forests", f"{MORE} {LEAD}")]
    assert list(titled(article(LEAD, title=""))) == []


def test_a_section_ends_at_a_list_or_at_a_heading_without_markup() -> None:
    for short in ("History.", "Red fox", "A fox of the north, which is white in winter and brown in summer"):
        assert list(titled(article(LEAD, short, MORE))) == [("Fox", LEAD)]
    assert list(titled(article("Red fox", LEAD))) == [("Fox", "")]
    chinese = "狐狸是一种小型动物，" * 5 + "它跳过了狗。"
    assert list(titled(article(chinese))) == [("Fox", chinese)]


def test_a_section_is_cut_between_paragraphs() -> None:
    long = f"{'The fox jumps. ' * 110}It ends."
    ((_, text),) = titled(article(LEAD, long))
    assert text == LEAD
    assert list(titled(article(long, LEAD))) == [("Fox", long)]


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
    first, short, second = pairs_of(article(LEAD), [("Fox", LEAD), ("Fox", "Red."), ("Dog", MORE)])
    assert first == Document("wikipedia/7/1", ("Fox", LEAD), group="wikipedia/7", guessed="cp1252", unknown=("{{x}}",))
    assert short == Dropped("no text or short")
    assert second == Document("wikipedia/7/3", ("Dog", MORE), group="wikipedia/7")


def test_a_document_without_pairs_is_left_out_with_its_counts() -> None:
    assert list(pairs_of(article(LEAD), [])) == [Dropped("no pair", ("{{x}}",))]


SPOKEN = (
    "1\n00:00:01,000 --> 00:00:02,500\nThe fox jumps\nover the dog.\n\n2\n00:00:03,000 --> 00:00:04,000\nIt sleeps.\n"
)


@pytest.fixture
def subtitles() -> Iterator[Source]:
    with own_code(EXAMPLES):
        import_named("deepsiam_examples.subtitles", "the test")
        yield SOURCES["subtitles"]


def test_it_reads_what_its_text_says(subtitles: Source, tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(SPOKEN.replace("\n", "\r\n"))
    (tmp_path / "b.srt").write_bytes(b"1\n00:00:01,000 --> 00:00:02,500\n\xff\x81\x00\x98\n")
    (tmp_path / "c.srt").write_text("no cue\n")
    (tmp_path / "d.txt").write_text("not looked at\n")
    spoken, bad, nothing = subtitles.documents([tmp_path])
    assert spoken == Document("subtitles/a.srt", ("The fox jumps\nover the dog.", "It sleeps."))
    assert isinstance(bad, Bad)
    assert nothing == NO_TEXT


def test_registered_it_is_a_command(subtitles: Source, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.srt").write_text(SPOKEN)
    options = ["--out", str(tmp_path / "out"), "--vocab-size", "100", "--workers", "1"]
    assert main(["subtitles", str(tmp_path / "in"), *options]) == 0
    manifest = Manifest.load(tmp_path / "out" / "shards")
    assert (manifest.total("documents"), manifest.total("segments")) == (1, 2)
    assert manifest.source["command"] == "subtitles"


OF_ANOTHER = APPLE_DOUBLE + b"\0\2\0\0Mac OS X        \0\2\0\0\0\x09"


def test_linked_folders_are_read_once_whatever_they_lead_to(tmp_path: Path) -> None:
    elsewhere, given = tmp_path / "elsewhere", tmp_path / "given"
    for folder in (elsewhere / "deeper", given / "own"):
        folder.mkdir(parents=True)
    (elsewhere / "deeper" / "a.txt").write_text("The keeper wrote a letter.")
    (given / "own" / "b.txt").write_text("Nobody answered it.")
    (given / "linked").symlink_to(elsewhere)
    (given / "again").symlink_to(given / "own")
    (given / "own" / "up").symlink_to(given)
    assert [file.name for file in TEXT.find([given])] == ["text/linked/deeper/a.txt", "text/own/b.txt"]


def test_a_macs_files_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("The keeper wrote a letter.")
    (tmp_path / "._book.txt").write_bytes(OF_ANOTHER)
    (tmp_path / "._odd.txt").write_text("A text with an odd name.")
    left_out, odd, book = TEXT.documents([tmp_path])
    assert left_out == OF_A_MAC
    assert isinstance(odd, Document)
    assert isinstance(book, Document)
    (tmp_path / "._wiki_00").write_bytes(OF_ANOTHER)
    assert list(WIKIPEDIA.documents([tmp_path / "._wiki_00"])) == [OF_A_MAC]
    with tarfile.open(tmp_path / "books.tar", "w") as tar:
        for name in ("._book.txt", "book.txt"):
            tar.add(tmp_path / name, name)
    assert [isinstance(item, Document) for item in BOOKCORPUS.documents([tmp_path / "books.tar"])] == [False, True]
