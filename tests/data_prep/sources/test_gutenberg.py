import re
from itertools import product
from pathlib import Path

import pytest

from deepsiam.data_prep.sources.bookcorpus import BOOKCORPUS
from deepsiam.data_prep.sources.document import Bad
from deepsiam.data_prep.sources.gutenberg import GAP
from tests.data_prep.sources.test_bookcorpus import STORY, book, wrapped

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


@pytest.mark.parametrize("template", [OF_2002, OF_1998])
@pytest.mark.parametrize(
    "end",
    ["", END, "End of this Etext", "*** END OF THE COPYRIGHTED "]
    + ["Ende dieses Project Gutenberg Etextes The Fox", "Ende dieses Projekt Gutenberg Etextes", "Ende dieses Etextes"]
    + ["Fin de Project Gutenberg Etext The Fox", "Fin du Projet Gutenberg", "Fine dell'Etext Project Gutenberg di Fox"]
    + ["Fim do Projecto Gutenberg", "Fin del Proyecto Gutenberg", "Slutet på Project Gutenbergs The Fox"]
    + ["Einde van het Project Gutenberg EBook van The Fox", "Loppu Project Gutenbergin", "Τέλος του Project Gutenberg"]
    + ["This is the end of the Project Gutenberg Etext", "End of the Project\nGutenberg Etext of The Fox"],
)
def test_small_print_and_end_lines_of_any_language(tmp_path: Path, template: str, end: str) -> None:
    end += "PROJECT GUTENBERG EBOOK THE FOX ***" if end.endswith("COPYRIGHTED ") else ""
    (tmp_path / "fox.txt").write_text(template.format(STORY[0], end=end))
    assert book(tmp_path / "fox.txt")[0].segments == (STORY[0],)


@pytest.mark.parametrize("article", ["THE ", "THIS ", "THE COPYRIGHTED ", ""])
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("***START", "***END"),
        ("**** START", "**** END"),
        ("  *** START", "END"),
        ("START", "*** END"),
        ("_*** start", "_*** end"),
    ],
)
def test_begin_lines_in_any_wording(tmp_path: Path, begin: str, end: str, article: str) -> None:
    frame = GUTENBERG.replace("*** START", begin).replace("*** END", end).replace("OF THIS ", f"OF {article}")
    (tmp_path / "fox.txt").write_text(wrapped(frame, 70))
    assert book(tmp_path / "fox.txt")[1][0] == "THE FOX"
    assert not any("GUTENBERG" in segment.upper() for segment in book(tmp_path / "fox.txt")[0].segments)


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


def test_the_notice_between_the_acts_of_plays_is_cut(tmp_path: Path) -> None:
    notice = "<<THIS ELECTRONIC VERSION OF THE COMPLETE WORKS IS COPYRIGHT\nBY A LIBRARY.>>"
    (tmp_path / "fox.txt").write_text("\n\n".join([STORY[0], notice, STORY[1]]))
    assert book(tmp_path / "fox.txt")[0].segments == STORY[:2]


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
    apart, path = list[str](), tmp_path / "two.txt"
    for template in templates:
        path.write_text(template)
        apart += book(path)[0].segments
    path.write_text("\n".join(templates))
    assert list(book(path)[0].segments) == apart


def test_a_book_that_no_line_ends_is_kept(tmp_path: Path) -> None:
    old = "Etext of The Fox\n\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n{0}\n\n"
    (tmp_path / "old.txt").write_text(wrapped(old, 70))
    assert book(tmp_path / "old.txt")[0].segments == (STORY[0],)
    (tmp_path / "two.txt").write_text(wrapped(old + "*** START OF THIS PROJECT GUTENBERG EBOOK FOX ***\n{1}", 70))
    assert book(tmp_path / "two.txt")[0].segments == STORY[:2]
