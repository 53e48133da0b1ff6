import gzip
import tarfile
import textwrap
import tracemalloc
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import bookcorpus, plain_text
from deepsiam.data_prep.sources.bookcorpus import BOOKCORPUS, BOOKCORPUS_SENTENCES
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from tests.data_prep.sources.test_tar_stream import packed
from tests.samples import DATA, needs

STORY = (
    "It was a dark night, and the quick brown fox jumped over the dog, who was asleep in front of the old barn.",
    '"Who is there?" said the dog, when the fox had jumped over him for the third time in as many nights.',
    "Nobody said a word. Part Two of the plan had begun, and it was to be seen whether Chapter V was of any use to it.",
)
OPEN = """<|file name="fox.epub/title.xhtml.md"|>
# The Fox

![Cover](cover.jpg)

Published by A. Dog at Smashwords

Copyright 2012 A. Dog

This ebook is licensed for your personal enjoyment only. It may not be re-sold.

## Chapter One: [The Night](fox.xhtml#one)

{0}

**{1}**

* * *

## 2

_{2}_ That was 3\\. of the_three_kinds.

About the Author

A. Dog lives in a barn. Copyright is not his trade.
"""


def book(path: Path) -> tuple[Document, list[str]]:
    """The one book of a file, and its headings."""
    [document] = BOOKCORPUS.documents([path])
    assert isinstance(document, Document)
    return document, [document.segments[index] for index in document.headings]


def wrapped(template: str, columns: int) -> str:
    return template.format(*(textwrap.fill(paragraph, columns) for paragraph in STORY))


def test_e_books_lose_their_markup_and_their_licence(tmp_path: Path) -> None:
    (tmp_path / "fox.epub.txt").write_text(wrapped(OPEN, 1000))
    document, headings = book(tmp_path / "fox.epub.txt")
    assert headings == ["The Fox", "Chapter One: The Night", "2", "About the Author"]
    assert document.segments == (
        *headings[:2],
        *STORY[:2],
        "2",
        f"{STORY[2]} That was 3. of the_three_kinds.",
        "About the Author",
        "A. Dog lives in a barn. Copyright is not his trade.",
    )


@pytest.mark.parametrize(
    "heading",
    ["CHAPTER I", "Chapter 12. The Barn", "CHAPTER IV - AT THE BARN", "Chapter Twenty-One A Barn", "BOOK THE FIRST"]
    + ["Part Two: In which we meet a dog", "# A Barn", "XIV.", "7", "II. THE BARN", "PROLOGUE", "Contents", "THE BARN."]
    + ["Scene III. A barn.", "Chapter Nineteen", "Volume 2", "Acknowledgments"],
)
def test_headings(tmp_path: Path, heading: str) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join([*STORY, heading, *STORY]))
    document, headings = book(tmp_path / "a.txt")
    assert headings == [heading.lstrip("# ")]
    assert document.headings == (3,)


@pytest.mark.parametrize(
    "line",
    ["Part One was over.", "chapter one", "Book I liked", "NO!", '"I AM A FOX"', "A Barn", "12 dogs slept.", "YES,"]
    + ["Chapter Two. " + "It was long. " * 9, "Section of the barn", "the end", "#1 fan of it", "# #"],
)
def test_lines_that_are_not_headings(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join([*STORY, line, *STORY]))
    assert book(tmp_path / "a.txt")[1] == []


def test_page_numbers_are_not_headings(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join([STORY[0], "98", STORY[1], "101", STORY[2], "1984 ", STORY[0]]))
    document, headings = book(tmp_path / "a.txt")
    assert headings == []
    assert document.segments == (*STORY, STORY[0])


def test_tars_are_read_without_being_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fox = STORY[0].encode()
    tar = packed({"books1/": b""}, type=tarfile.DIRTYPE)[:512]
    tar += packed({"../../books1/epubtxt/fox.epub.txt": fox})[:1024]
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE):
        tar += packed({"odd.txt": b""}, type=kind, linkname="/etc/passwd")[:512]
    tar += packed(
        {"a\nb.txt": b"\xff\x81\x00\x98", "empty.txt": b"", "cover.jpg": b"\xff", "long.txt": fox * 9, "x/fox.TXT": fox}
    )
    for name, content in {
        "books1.tar": tar,
        "books1.tar.gz": gzip.compress(tar),
        "books1.tgz": gzip.compress(tar),
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        monkeypatch.setattr(plain_text, "MAX_BYTES", 200)
        monkeypatch.setattr(bookcorpus, "MAX_BYTES", 200)
        before = sorted(tmp_path.rglob("*"))
        assert list(BOOKCORPUS.documents([path])) == [
            Document("bookcorpus/../../books1/epubtxt/fox.epub.txt", (STORY[0],)),
            *[Bad(str(path), "member odd.txt", "not a regular file")] * 3,
            Bad(str(path), "member a b.txt", "not UTF-8 at byte 0, nor of a known encoding; name it with --encoding"),
            Dropped("empty"),
            Dropped("not named .txt"),
            Bad(str(path), "member long.txt", "more than 200 bytes"),
            Document("bookcorpus/x/fox.TXT", (STORY[0],)),
        ]
        assert sorted(tmp_path.rglob("*")) == before


def test_books_of_the_same_name_have_different_ids(tmp_path: Path) -> None:
    def ids(*names: str) -> list[str]:
        records = BOOKCORPUS.documents([tmp_path / name for name in names])
        return [record.id.removeprefix("bookcorpus") for record in records if isinstance(record, Document)]

    fox = {"fox.txt": STORY[0].encode()}
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fox.txt").write_text(STORY[0])
        tar = packed(fox)[:1024] + packed({"x.jpg": b"", "a/fox.txt": b"", **fox})
        (tmp_path / f"{folder}.tar").write_bytes(tar)
    (tmp_path / "c.tar").write_bytes(packed(fox))
    assert ids("a", "b", "c.tar") == ["/fox.txt", "/fox.txt#2", "#2/fox.txt"]
    assert ids("a.tar", "b.tar") == ["/fox.txt", "/fox.txt#2", "#2/fox.txt", "#2/fox.txt#2"]


def test_the_reader_splits_tars_and_runs_and_workers_open_texts(tmp_path: Path) -> None:
    text, tar = tmp_path / "fox.txt", tmp_path / "a.tar"
    text.write_text("\n".join(STORY))
    tar.write_bytes(packed({"fox.txt": STORY[0].encode(), "a.jpg": b"\xff" * 1000}))
    cut = [piece for file in BOOKCORPUS.find([text, tar]) for piece in BOOKCORPUS.pieces(file, {})]
    assert [(piece.where, piece.size) for piece in cut] == [
        ("the file", text.stat().st_size),
        ("member fox.txt", len(STORY[0])),
        ("member a.jpg", 0),
    ]
    [file] = BOOKCORPUS_SENTENCES.find([text])
    cut += BOOKCORPUS_SENTENCES.pieces(file, {})
    assert (cut[-1].where, cut[-1].size) == ("line 1", text.stat().st_size)


def test_bad_lines_and_blank_ones_shift_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookcorpus, "LINES", 3)
    monkeypatch.setattr(bookcorpus, "LONGEST_SENTENCE", 20)
    path = tmp_path / "books_large_p1.txt"
    lines = [b"the fox .", b"the  dog .", b"", b"\xff", b"x" * 21, b"", b" ", b"", b"", b"he ran .\r", b"it sat ."]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert list(BOOKCORPUS_SENTENCES.documents([path])) == [
        Document("bookcorpus/books_large_p1.txt/1", ("the fox .", "the dog .")),
        Bad(str(path), "line 4", "not UTF-8 at byte 0"),
        Bad(str(path), "line 5", "more than 20 bytes"),
        Document("bookcorpus/books_large_p1.txt/10", ("he ran .", "it sat .")),
    ]


@pytest.mark.parametrize("blank", ["", " \t", "\r", "\u3000", "\ufeff", "\u200b\xa0", "\n\n"])
def test_a_blank_line_ends_any_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    monkeypatch.setattr(bookcorpus, "LINES", 3)
    parts = [["fox 1 .", "fox 2 .", "fox 3 .", "fox 4 ."], ["éa ."], ["fox 7 .", "fox 8 ."]]
    path = tmp_path / "wiki.txt"
    path.write_text(f"\n{blank}\n".join("\n".join(part) for part in parts) + f"\n{blank}\n")
    documents = [document for document in BOOKCORPUS_SENTENCES.documents([path]) if isinstance(document, Document)]
    assert [list(document.segments) for document in documents] == parts
    assert len({document.id for document in documents}) == 3


def test_a_document_too_long_for_memory_is_cut_into_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookcorpus, "LINES", 3)
    monkeypatch.setattr(bookcorpus, "LONGEST_DOCUMENT", 40)
    path = tmp_path / "wiki.txt"
    path.write_text("".join(f"{'' if n in (15, 18) else f'fox {n} .'}\n" for n in range(1, 31)))
    documents = [document for document in BOOKCORPUS_SENTENCES.documents([path]) if isinstance(document, Document)]
    assert [(document.id.split("/")[-1], len(document.segments)) for document in documents] == (
        [(str(n), 3) for n in range(4)] + [("13", 2), ("16", 2), ("19", 3), ("22", 3), ("25", 3), ("28", 3)]
    )


def test_a_sentence_file_in_utf_16_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p1.txt").write_text("the fox .\n" * 9, encoding="utf-16-le")
    with pytest.raises(InputError, match="p1.txt: is not UTF-8 but utf_16_le; convert it, as iconv does"):
        list(BOOKCORPUS_SENTENCES.documents([tmp_path / "p1.txt"]))


def test_sentence_files_are_streamed(tmp_path: Path) -> None:
    path = tmp_path / "books_large_p2.txt.gz"
    path.write_bytes(gzip.compress((b"fox " + b"x" * 1000 + b"\n") * 20_000, 1))
    tracemalloc.start()
    assert sum(isinstance(document, Document) for document in BOOKCORPUS_SENTENCES.documents([path])) == 40
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20  # of 20 MB


@pytest.mark.slow
@needs("books")
def test_real_books_keep_their_words() -> None:
    documents = [document for document in BOOKCORPUS.documents([DATA / "books"]) if isinstance(document, Document)]
    assert len(documents) == 64
    words = sum(len(segment.split()) for document in documents for segment in document.segments)
    assert 0.999 * 6_019_495 < words <= 6_019_495  # the count in the index; the rest is dashes at line ends and markup
    headings = {
        document.id: sum(document.segments[index].upper().startswith("CHAPTER") for index in document.headings)
        for document in documents
    }
    assert headings["bookcorpus/Dickens_Expectations_1861.txt"] == 59
    assert headings["bookcorpus/Cbronte_Jane_1847.txt"] == 38
    assert headings["bookcorpus/Bennet_Babylon_1902.txt"] == 30
    assert headings["bookcorpus/brown_news.txt"] == 0
