"""Text files, one document each, and JSON lines; for bad lines see test_contract.py."""

import gzip
import os
from pathlib import Path

import pytest

from deepsiam.data_prep.sources import plain_text
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.plain_text import JSONL, TEXT

EMPTY = Dropped("empty")
FILES = {
    "a.TXT": (b"Only this.", Document("text/a.TXT", ("Only this.",))),
    "b/one.txt": (
        b"\xef\xbb\xbfThe fox\r\njumps.\r\n\r\n\r\nThe dog\tsleeps.\x00\r\n",
        Document("text/b/one.txt", ("The fox jumps.", "The dog sleeps.")),
    ),
    "b/two.txt.gz": (gzip.compress("Caf\u0065\u0301 here.".encode()), Document("text/b/two.txt.gz", ("Café here.",))),
    "blank.txt": (b" \n\n", EMPTY),
    "empty.txt": (b"", EMPTY),
    "folder.txt/three.txt": (b"Three.", Document("text/folder.txt/three.txt", ("Three.",))),
    os.fsdecode(b"f\xffox\n.txt"): (b"The fox.", Document("text/fox .txt", ("The fox.",))),
    "latin.txt": (b"Caf\xe9 here.", Document("text/latin.txt", ("Café here.",), guessed="cp1252")),
}


def write(path: Path, *lines: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\n".join(lines))
    return path


def test_a_file_is_a_document_of_paragraphs(tmp_path: Path) -> None:
    for name, (content, _) in FILES.items():
        write(tmp_path / name, content)
    write(tmp_path / "notes.md", b"Not a text.")
    assert list(TEXT.documents([tmp_path])) == [expected for _, expected in FILES.values()]
    latin = tmp_path / "latin.txt"
    bad = Bad(str(latin), "the file", "not utf-8 at byte 3")
    assert list(TEXT.documents([latin], encoding="utf-8")) == [bad]
    assert list(TEXT.documents([latin], encoding="cp1253")) == [Document("text/latin.txt", ("Cafι here.",))]


def test_a_file_or_a_line_that_is_too_long_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "MAX_BYTES", 16)
    short, long = write(tmp_path / "a.txt", b"Sixteen bytes. A"), write(tmp_path / "b.txt", b"Seventeen bytes. ")
    lines = write(tmp_path / "a.jsonl", b'{"text": "a fox that is long"}', b'{"text": "fox4"}')
    assert [*TEXT.documents([short, long]), *JSONL.documents([lines])] == [
        Document("text/a.txt", ("Sixteen bytes. A",)),
        Bad(str(long), "the file", "more than 16 bytes"),
        Bad(str(lines), "line 1", "more than 16 bytes"),
        Document("jsonl/a.jsonl/2", ("fox4",)),
    ]


def test_a_line_is_a_document(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"body": "The fox\\njumps.\\n\\nIt runs.", "key": "a\\tb"}',
        b"",
        b'{"body": "Caf\\u00e9 \\ud83e\\udd8a", "key": 7}\r',
        b'{"body": " \\n", "key": "c"}',
    ]
    path, fox, coffee = write(tmp_path / "a.jsonl", *lines), ("The fox jumps.", "It runs."), ("Café 🦊",)
    assert list(JSONL.documents([path], text="body")) == [
        Document("jsonl/a.jsonl/1", fox),
        Document("jsonl/a.jsonl/3", coffee),
        EMPTY,
    ]
    assert list(JSONL.documents([path, path], text="body", id="key"))[2:] == [
        EMPTY,
        Document("jsonl/a.jsonl#2/a b", fox),
        Document("jsonl/a.jsonl#2/7", coffee),
        EMPTY,
    ]
