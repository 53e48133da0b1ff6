import gzip
import os
from pathlib import Path

import pytest

from deepsiam.data_prep.sources import plain_text
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.plain_text import JSONL, TEXT

EMPTY = Dropped("empty")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {
        "b/one.txt": b"\xef\xbb\xbfThe fox\r\njumps.\r\n\r\n\r\nThe dog\tsleeps.\x00\r\n",
        "a.TXT": b"Only this.",
        "b/two.txt.gz": gzip.compress("Caf\u0065\u0301 here.".encode()),
        "blank.txt": b" \n\n",
        "empty.txt": b"",
        "latin.txt": b"Caf\xe9 here.",
        "notes.md": b"Not a text.",
        "folder.txt/three.txt": b"Three.",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_a_file_is_a_document_of_paragraphs(folder: Path) -> None:
    assert list(TEXT.documents([folder])) == [
        Document("text/a.TXT", ("Only this.",)),
        Document("text/b/one.txt", ("The fox jumps.", "The dog sleeps.")),
        Document("text/b/two.txt.gz", ("Café here.",)),
        EMPTY,
        EMPTY,
        Document("text/folder.txt/three.txt", ("Three.",)),
        Document("text/latin.txt", ("Café here.",), guessed="cp1252"),
    ]
    assert list(TEXT.documents([folder / "latin.txt"], encoding="utf-8")) == [
        Bad(str(folder / "latin.txt"), "the file", "not utf-8 at byte 3")
    ]
    assert list(TEXT.documents([folder / "latin.txt"], encoding="cp1253")) == [
        Document("text/latin.txt", ("Cafι here.",))
    ]


def test_a_file_or_a_line_that_is_too_long_is_bad(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "MAX_BYTES", 16)
    path = folder / "b" / "one.txt"
    lines = write(folder / "a.jsonl", b'{"text": "a fox that is long"}', b'{"text": "fox"}')
    assert [*TEXT.documents([folder / "a.TXT", path]), *JSONL.documents([lines])] == [
        Document("text/a.TXT", ("Only this.",)),
        Bad(str(path), "the file", "more than 16 bytes"),
        Bad(str(lines), "line 1", "more than 16 bytes"),
        Document("jsonl/a.jsonl/2", ("fox",)),
    ]


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join(lines))
    return path


def test_a_line_is_a_document(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"body": "The fox\\njumps.\\n\\nIt runs.", "key": "a\\tb"}',
        b"",
        b'{"body": "Caf\\u00e9 \\ud83e\\udd8a", "key": 7}\r',
        b'{"body": " \\n", "key": "c"}',
    ]
    path = write(tmp_path / "a.jsonl", *lines)
    fox = ("The fox jumps.", "It runs.")
    assert list(JSONL.documents([path], text="body")) == [
        Document("jsonl/a.jsonl/1", fox),
        Document("jsonl/a.jsonl/3", ("Café 🦊",)),
        EMPTY,
    ]
    ids = [getattr(record, "id", "") for record in JSONL.documents([path, path], text="body", id="key")]
    assert ids == ["jsonl/a.jsonl/a b", "jsonl/a.jsonl/7", "", "jsonl/a.jsonl#2/a b", "jsonl/a.jsonl#2/7", ""]


def test_file_names_that_are_not_utf_8_make_ids_that_are(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"f\xffox\n.txt")).write_text("The fox.")
    assert list(TEXT.documents([tmp_path])) == [Document("text/fox .txt", ("The fox.",))]
