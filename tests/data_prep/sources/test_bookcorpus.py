"""Books: plain text, e-books, Project Gutenberg's frames, and files of sentences."""

import gzip
import re
import tarfile
import textwrap
import tracemalloc
from itertools import product
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import bookcorpus, plain_text
from deepsiam.data_prep.sources.bookcorpus import BOOKCORPUS, BOOKCORPUS_SENTENCES
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.gutenberg import GAP
from deepsiam.data_prep.sources.source import Source
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


def read(source: Source, *paths: Path) -> list[Document]:
    return [record for record in source.documents(paths) if isinstance(record, Document)]


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


HEADINGS = [
    *("CHAPTER I", "Chapter 12. The Barn", "CHAPTER IV - AT THE BARN", "Chapter Twenty-One A Barn", "BOOK THE FIRST"),
    *("Part Two: In which we meet a dog", "# A Barn", "XIV.", "7", "II. THE BARN", "PROLOGUE", "Contents", "THE BARN."),
    *("Scene III. A barn.", "Chapter Nineteen", "Volume 2", "Acknowledgments"),
]
LINES = [
    "98\n\nThe barn was large.\n\n101\n\nIt was old.\n\n1984 ",  # numbers of pages
    *("Part One was over.", "chapter one", "Book I liked", "NO!", '"I AM A FOX"', "A Barn", "12 dogs slept.", "YES,"),
    *("Chapter Two. " + "It was long. " * 9, "Section of the barn", "the end", "#1 fan of it", "# #"),
]


@pytest.mark.parametrize("line", HEADINGS + LINES)
def test_headings_are_told_from_lines(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join([*STORY, line, *STORY]))
    document, headings = book(tmp_path / "a.txt")
    assert headings == [line.lstrip("# ")] * (line in HEADINGS)
    assert document.headings == (3,) * (line in HEADINGS)


def test_tars_are_read_without_being_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fox = STORY[0].encode()
    tar = packed({"books1/": b""}, type=tarfile.DIRTYPE)[:512]
    tar += packed({"../../books1/epubtxt/fox.epub.txt": fox})[:1024]
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE):
        tar += packed({"odd.txt": b""}, type=kind, linkname="/etc/passwd")[:512]
    others = {"a\nb.txt": b"\xff\x81\x00\x98", "empty.txt": b"", "cover.jpg": b"\xff", "long.txt": fox * 9}
    tar += packed({**others, "x/fox.TXT": fox})
    monkeypatch.setattr(plain_text, "MAX_BYTES", 200)
    monkeypatch.setattr(bookcorpus, "MAX_BYTES", 200)
    for name in ("books1.tar", "books1.tar.gz", "books1.tgz"):
        path = tmp_path / name
        path.write_bytes(tar if name.endswith("tar") else gzip.compress(tar))
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
        return [book.id.removeprefix("bookcorpus") for book in read(BOOKCORPUS, *(tmp_path / name for name in names))]

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
    cut += [piece for file in BOOKCORPUS_SENTENCES.find([text]) for piece in BOOKCORPUS_SENTENCES.pieces(file, {})]
    assert [(piece.where, piece.size) for piece in cut] == [
        ("the file", text.stat().st_size),
        ("member fox.txt", len(STORY[0])),
        ("member a.jpg", 0),
        ("line 1", text.stat().st_size),
    ]


def test_bad_lines_and_blank_ones_shift_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookcorpus, "LINES", 3)
    monkeypatch.setattr(bookcorpus, "LONGEST_SENTENCE", 20)
    path = tmp_path / "books_large_p1.txt"
    lines = [b"the fox .", b"the  dog .", b"", b"\xff", b"x" * 21, b"", b" ", b"", b"", b"he ran .\r", b"it sat ."]
    path.write_bytes(b"\n".join(lines) + b"\n")
    (tmp_path / "utf16.txt").write_text("the fox .\n" * 9, encoding="utf-16-le")
    with pytest.raises(InputError, match="utf16.txt: is not UTF-8 but utf_16_le; convert it, as iconv does"):
        list(BOOKCORPUS_SENTENCES.documents([tmp_path / "utf16.txt"]))
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
    documents = read(BOOKCORPUS_SENTENCES, path)
    assert [list(document.segments) for document in documents] == parts
    assert len({document.id for document in documents}) == 3


def test_a_document_too_long_for_memory_is_cut_into_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookcorpus, "LINES", 3)
    monkeypatch.setattr(bookcorpus, "LONGEST_DOCUMENT", 40)
    path = tmp_path / "wiki.txt"
    path.write_text("".join(f"{'' if n in (15, 18) else f'fox {n} .'}\n" for n in range(1, 31)))
    found = [(document.id.split("/")[-1], len(document.segments)) for document in read(BOOKCORPUS_SENTENCES, path)]
    assert found == [*((str(n), 3) for n in range(4)), ("13", 2), ("16", 2), *((str(n), 3) for n in (19, 22, 25, 28))]


def test_sentence_files_are_streamed(tmp_path: Path) -> None:
    path = tmp_path / "books_large_p2.txt.gz"
    path.write_bytes(gzip.compress((b"fox " + b"x" * 4000 + b"\n") * 5_000, 1))
    tracemalloc.start()
    assert sum(isinstance(document, Document) for document in BOOKCORPUS_SENTENCES.documents([path])) == 10
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20  # of 20 MB


@pytest.mark.slow
@needs("books")
def test_real_books_keep_their_words() -> None:
    documents = read(BOOKCORPUS, DATA / "books")
    assert len(documents) == 64
    words = sum(len(segment.split()) for document in documents for segment in document.segments)
    assert 0.999 * 6_019_495 < words <= 6_019_495  # the count in the index; the rest is dashes at line ends and markup
    chapters = {
        document.id.removeprefix("bookcorpus/"): sum(
            document.segments[index].upper().startswith("CHAPTER") for index in document.headings
        )
        for document in documents
    }
    known = {"Dickens_Expectations_1861": 59, "Cbronte_Jane_1847": 38, "Bennet_Babylon_1902": 30, "brown_news": 0}
    assert {name: chapters[f"{name}.txt"] for name in known} == known


GUTENBERG = """\ufeffThe Project Gutenberg EBook of The Fox, by A. Dog

This eBook is for the use of anyone anywhere at no cost and with
almost no restrictions whatsoever.

Title: The Fox

*** START OF THIS PROJECT GUTENBERG EBOOK THE FOX, OR THE LIFE OF AN
ANIMAL ***


Produced by A. Cat and the Distributed Proofreaders

THE FOX

CHAPTER I

IN WHICH THE DOG SLEEPS.

{0}

{1}

* * * * *

CHAPTER II
The Barn

{2}

{0}

THE END

End of Project Gutenberg's The Fox, by A. Dog

*** END OF THIS PROJECT GUTENBERG EBOOK THE FOX ***

Updated editions will replace the previous one.
"""
SMALL_PRINT = """***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this "Small Print!" statement here? You know: lawyers.

*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*
"""
OF_2002 = f"""The Project Gutenberg Etext of The Fox, by A. Dog

This header should be the first thing seen when anyone starts to
view the etext. Do not change or edit it without written permission.

*****These Etexts Were Prepared By Thousands of Volunteers!*****

Title: The Fox

Language: German

{{0}}

{{end}}

This file should be named fox10.txt or fox10.zip

{SMALL_PRINT}"""
OF_1998 = f"""**The Project Gutenberg Etext of The Fox, by A. Dog**

Information about Project Gutenberg (one page)

We produce about two million dollars for each hour we work.

{SMALL_PRINT}
This etext was prepared by A. Cat

{{0}}

{{end}}
"""
END = "End of The Project Gutenberg Etext of The Fox, by A. Dog"


def test_gutenbergs_frame_is_cut_and_lines_are_joined(tmp_path: Path) -> None:
    (tmp_path / "fox.txt").write_bytes(wrapped(GUTENBERG, 70).replace("\n", "\r\n").encode())
    document, headings = book(tmp_path / "fox.txt")
    assert document.id == "bookcorpus/fox.txt"
    assert headings == ["THE FOX", "CHAPTER I", "IN WHICH THE DOG SLEEPS.", "CHAPTER II", "The Barn", "THE END"]
    assert document.segments == (*headings[:3], *STORY[:2], *headings[3:5], STORY[2], STORY[0], "THE END")


ENDS = [
    *("", END, "End of this Etext", "*** END OF THE COPYRIGHTED PROJECT GUTENBERG EBOOK THE FOX ***"),
    *("Ende dieses Project Gutenberg Etextes The Fox", "Ende dieses Projekt Gutenberg Etextes", "Ende dieses Etextes"),
    *("Fin de Project Gutenberg Etext The Fox", "Fin du Projet Gutenberg", "Fine dell'Etext Project Gutenberg di Fox"),
    *("Fim do Projecto Gutenberg", "Fin del Proyecto Gutenberg", "Slutet på Project Gutenbergs The Fox"),
    *("Einde van het Project Gutenberg EBook van The Fox", "Loppu Project Gutenbergin", "Τέλος του Project Gutenberg"),
    *("This is the end of the Project Gutenberg Etext", "End of the Project\nGutenberg Etext of The Fox"),
]


@pytest.mark.parametrize("template", [OF_2002, OF_1998])
@pytest.mark.parametrize("end", ENDS)
def test_small_print_and_end_lines_of_any_language(tmp_path: Path, template: str, end: str) -> None:
    (tmp_path / "fox.txt").write_text(template.format(STORY[0], end=end))
    assert book(tmp_path / "fox.txt")[0].segments == (STORY[0],)


@pytest.mark.parametrize(
    ("begin", "end", "article"),
    [
        ("***START", "***END", "THE "),
        ("**** START", "**** END", "THIS "),
        ("  *** START", "END", "THE COPYRIGHTED "),
        ("START", "*** END", ""),
        ("_*** start", "_*** end", "THE "),
        ("START", "*** END", "THE COPYRIGHTED "),
    ],
)
def test_begin_lines_in_any_wording(tmp_path: Path, begin: str, end: str, article: str) -> None:
    frame = GUTENBERG.replace("*** START", begin).replace("*** END", end).replace("OF THIS ", f"OF {article}")
    (tmp_path / "fox.txt").write_text(wrapped(frame, 70))
    document, headings = book(tmp_path / "fox.txt")
    assert headings[0] == "THE FOX"
    assert not any("GUTENBERG" in segment.upper() for segment in document.segments)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{0}\n\n{1}\n\n*** START OF THE PROJECT GUTENBERG EBOOK FOX ***\n", 5),
        ("Fox\n\n*** END OF THE PROJECT GUTENBERG EBOOK FOX ***\n\n{0}\n\n{1}\n\n{2}", 3),
        ("***START** SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS***\n\n{0}", 1),
        ("The Project Gutenberg EBook of The Fox\n\nTitle: The Fox\n", 1),
    ],
)
def test_a_frame_that_takes_the_book_away_is_reported(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "fox.txt").write_text(text.format(*STORY))
    [bad] = BOOKCORPUS.documents([tmp_path / "fox.txt"])
    assert isinstance(bad, Bad)
    assert bad.reason.startswith("nearly all of its text is left out as a notice of Project Gutenberg")
    assert f"from its line {line} on" in bad.reason


FRAMES = {
    "start": GUTENBERG,
    "no start": re.sub(r"\*\*\* START[^*]+\*\*\*\n", "", GUTENBERG),
    "1998": OF_1998,
    "2002": OF_2002,
    "2003": OF_2002.replace("The Project Gutenberg Etext of", "Project Gutenberg's"),
}
ENDED, UNENDED = {"no header": "{0}\n\n" * (GAP + 1) + "{end}\n"}, {"no end": GUTENBERG.split("End of")[0]}


@pytest.mark.parametrize(
    ("first", "second"), [*product(FRAMES, {**FRAMES, **ENDED}), *product(UNENDED, FRAMES)], ids=lambda name: name
)
def test_several_books_in_a_file_lose_every_frame(tmp_path: Path, first: str, second: str) -> None:
    templates = [wrapped({**FRAMES, **ENDED, **UNENDED}[name].replace("{end}", END), 70) for name in (first, second)]
    path, found = tmp_path / "two.txt", list[tuple[str, ...]]()
    for text in (*templates, "\n".join(templates)):
        path.write_text(text)
        found.append(book(path)[0].segments)
    assert found[2] == found[0] + found[1]


OLD = "Etext of The Fox\n\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n{0}\n\n"
NOTICE = "{0}\n\n<<THIS ELECTRONIC VERSION OF THE COMPLETE WORKS IS COPYRIGHT\nBY A LIBRARY.>>\n\n{1}"


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [(OLD, 1), (OLD + "*** START OF THIS PROJECT GUTENBERG EBOOK FOX ***\n{1}", 2), (NOTICE, 2)],
    ids=["no line ends it", "another line begins it", "a notice between acts"],
)
def test_the_text_around_old_notices_is_kept(tmp_path: Path, text: str, paragraphs: int) -> None:
    (tmp_path / "old.txt").write_text(wrapped(text, 70))
    assert book(tmp_path / "old.txt")[0].segments == STORY[:paragraphs]
