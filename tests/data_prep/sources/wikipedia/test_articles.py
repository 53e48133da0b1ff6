"""Wikipedia's other files: WikiExtractor's JSON lines and Parquet, and all of them in folders."""

import bz2
import gzip
import json
import random
import tracemalloc
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.wikipedia import articles
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA
from tests.data_prep.collections.raw_formats import write_parquet
from tests.data_prep.sources.wikipedia.test_xml_export import (
    DATA,
    counts,
    dump,
    from_file,
    outcome,
    page,
    read,
    real,
)


def test_extracted_lines_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(articles, "LARGEST_LINE", 200)
    lines = [
        json.dumps(
            {"id": "12", "revid": "", "title": "T &amp; U", "text": "A &lt;fox&gt; &amp;amp;.\n\nLife.\nIt  ran."}
        ).encode(),
        b'{"id": 13, "text": "One."}',
        b'{"id": "14", "text": " \\n"}',
        b"",
        b'{"id": "../15", "text": "x"}',
        b'{"id": true, "text": "x"}',
        b'{"id": "16"}',
        b"[1]",
        b"[" * 150,
        b'{"id": "17", "text": "\xff"}',
        b'{"id": "18", "text": "' + b"x" * 1000 + b'"}',
        b'{"id": "19", "text": "Lone \\ud800 half"}',
    ]
    records = read(b"\n".join(lines), "a.jsonl")
    assert records == [
        Document("wikipedia/12", ("A <fox> &amp;.", "Life.", "It ran."), title="T & U"),
        Document("wikipedia/13", ("One.",)),
        Dropped("empty"),
        Bad("a.jsonl", "line 5", "`id` is not the number of a page"),
        Bad("a.jsonl", "line 6", "`id` is not the number of a page"),
        Bad("a.jsonl", "line 7", "no `text`"),
        Bad("a.jsonl", "line 8", "not a JSON object"),
        Bad("a.jsonl", "line 9", "not JSON"),
        Bad("a.jsonl", "line 10", "not JSON"),
        Bad("a.jsonl", "line 11", "a line of more than 200 bytes"),
        Document("wikipedia/19", ("Lone half",)),
    ]


def test_a_huge_line_is_skipped_without_being_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(articles, "LARGEST_LINE", 100_000)
    content = b"{" + b"x" * 20_000_000 + b'\n{"id": "1", "text": "Fox."}\n' + b"[" * 90_000
    records = from_file(content, "a.jsonl")
    tracemalloc.start()
    read_records = list(records)
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read_records == [
        Bad("a.jsonl", "line 1", "a line of more than 100,000 bytes"),
        Document("wikipedia/1", ("Fox.",)),
        Bad("a.jsonl", "line 3", "not JSON"),
    ]
    assert highest < 5e6


@pytest.fixture
def parquet_file(tmp_path: Path) -> Path:
    texts = {"12": "A fox.\n\nLife\n\nIt &amp; ran.", "13": "", "14": None, "x": "Two.", "16": "Three."}
    rows = [{"id": id, "url": "u", "title": "T", "text": text} for id, text in texts.items()]
    return write_parquet(tmp_path / "a.parquet", rows, row_group_size=2)


def test_parquet_rows_are_read(parquet_file: Path) -> None:
    assert list(WIKIPEDIA.documents([parquet_file.parent])) == [
        Document("wikipedia/12", ("A fox.", "Life", "It &amp; ran."), title="T"),
        Dropped("empty"),
        Bad(str(parquet_file), "row 3", "no `text`"),
        Bad(str(parquet_file), "row 4", "`id` is not the number of a page"),
        Document("wikipedia/16", ("Three.",), title="T"),
    ]


def test_damaged_or_other_parquet_is_one_clear_line(parquet_file: Path, tmp_path: Path) -> None:
    content = parquet_file.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        damaged = bytearray(content)
        at = rng.randrange(len(damaged))
        damaged[at : at + rng.randrange(20)] = rng.randbytes(rng.randrange(20))
        (tmp_path / "a.damaged").write_bytes(damaged[: rng.choice([rng.randrange(len(damaged)), None])])
        records, message = outcome(WIKIPEDIA.documents([tmp_path / "a.damaged"]))
        assert all(isinstance(record, Document | Bad | Dropped) for record in records)
        expected = "not the Parquet of wikimedia" if damaged.startswith(b"PAR1") else "neither a MediaWiki XML"
        assert not message or f"a.damaged: {expected}" in message or "a.damaged: is empty" in message
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match="a.gz: not the Parquet"):
        list(WIKIPEDIA.documents([tmp_path / "a.gz"]))


def test_files_are_found_in_folders_in_order(tmp_path: Path) -> None:
    dumped, line = dump(page(1, "Fox.")), b'\xef\xbb\xbf\n {"id": 2, "text": "Dog."}'
    wanted = {
        "AA/wiki_00": line,
        "AA/wiki_01.bz2": bz2.compress(line),
        "AB/wiki_100": line,
        "enwiki-20240101-pages-articles-multistream.xml.bz2": bz2.compress(dumped),
        "enwiki-20240101-pages-articles1.xml-p1p41242.bz2": bz2.compress(dumped),
        "ltgwiki-pages-articles.xml": b"\xef\xbb\xbf" + dumped,
        "x/enwiki-pages-articles.xml.gz": gzip.compress(b"\n" + dumped),
    }
    others = ["AA/wiki_00.json", "AA/wiki_", "wiki_00/x", "enwiki-pages-articles-multistream-index.txt", "a.xml"] + [
        "x.parquet.d"
    ]
    for name, content in {**wanted, **dict.fromkeys(others, b"x")}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    files = list(WIKIPEDIA.find([tmp_path]))
    assert [file.path.relative_to(tmp_path).as_posix() for file in files] == list(wanted)
    assert [file.name for file in files] == [f"wikipedia/{name}" for name in wanted]
    again = WIKIPEDIA.find([tmp_path / "AA" / "wiki_00", tmp_path / "AA"])
    assert [file.name for file in again] == ["wikipedia/wiki_00", "wikipedia/wiki_00#2", "wikipedia/wiki_01.bz2"]
    fox, dog = Document("wikipedia/1", ("Fox.",), title="T"), Document("wikipedia/2", ("Dog.",))
    assert list(WIKIPEDIA.documents([tmp_path])) == [dog] * 3 + [fox] * 4


@real
def test_all_files_of_a_folder_are_found() -> None:
    names = [file.path.name for file in WIKIPEDIA.find([DATA])]
    assert len(names) == 35 + 2
    assert names[0] == "wiki_00"
    assert names[-1] == "ltgwiki-sample-pages-articles.xml.bz2"


@real
def test_wikiextractors_output_is_read() -> None:
    counted = counts(WIKIPEDIA.documents([DATA / "AA", DATA / "AB"]))
    assert counted == {"Document": 1627 + 5740, "empty": 72 + 2024}
