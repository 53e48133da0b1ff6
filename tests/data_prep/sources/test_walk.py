"""Which files of a folder are read, and what is said of the others."""

import tarfile
from pathlib import Path

from deepsiam.data_prep.sources.bookcorpus import BOOKCORPUS
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.sources.plain_text import TEXT
from deepsiam.data_prep.sources.source import APPLE_DOUBLE, OF_A_MAC
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA

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
