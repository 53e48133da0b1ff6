"""Links as pairs: which names of a page there are, from links and redirects, and what a part of them is."""

from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.wikipedia.links import BEST, WIKIPEDIA_LINKS, canonical
from tests.data_prep.sources.sound import sound
from tests.data_prep.sources.wikipedia.test_xml_export import dump, page

LEAD = "The fox is a small animal that eats what it finds."


def read(*pages: str) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The pairs of a dump by id, and the reasons for all that is left out."""
    path = Path("pages-articles.xml")
    path.write_bytes(dump(*pages))
    items = sound(WIKIPEDIA_LINKS.documents([path]))
    found = {item.id: item.segments for item in items if isinstance(item, Document)}
    assert {item.group for item in items if isinstance(item, Document)} <= {f"wikipedia/{n}" for n in range(99)}
    return found, [item.reason for item in items if isinstance(item, Dropped)]


def linking(*links: str, first: int = 20) -> list[str]:
    """Pages with a link each."""
    return [page(number, f"See {link}.", title=f"P{number}") for number, link in enumerate(links, first)]


FOX = page(7, f"{LEAD}\n\n== Life ==\nIt is short, and it is spent in woods and fields.", title="Red fox")


def test_the_names_that_most_pages_use_come_first() -> None:
    links = (
        ["[[red fox|the fox]]"] * 2 + ["[[Red_fox|Reynard]]"] * 3 + ["[[red&nbsp;fox|''V. vulpes'']]", "[[Red fox]]"]
    )
    found, _ = read(FOX, *linking(*links, "[[Red fox|The Fox]]", "[[Red fox|zorro]]"))
    assert found == {
        "wikipedia/7/link/1": ("Reynard", LEAD),  # equal: the first by the letters
        "wikipedia/7/link/2": ("the fox", LEAD),  # the commonest spelling
        "wikipedia/7/link/3": ("V. vulpes", LEAD),
    }
    assert len(found) == BEST


def test_a_page_counts_once_for_a_name() -> None:
    found, _ = read(
        FOX, *linking("[[Red fox|a]] and [[Red fox|a]] and [[Red fox|a]]", "[[Red fox|b]]", "[[Red fox|b]]")
    )
    assert [segments[0] for segments in found.values()] == ["b", "a"]


@pytest.mark.parametrize(
    "link",
    [
        "[[Red fox]]",
        "[[red Fox|RedFox]]",
        "[[Red fox|1998]]",
        "[[Red fox#Life|its life]]",
        "[[:Category:Red fox|a category]]",
        "[[Other|another]]",
        "[[Red fox|an open link",
        "[[Red fox|{{template}}]]",
    ],
)
def test_links_that_name_nothing(link: str) -> None:
    found, reasons = read(FOX, *linking(link))
    assert not found
    assert "no other name" in reasons


def test_an_ending_is_part_of_the_name() -> None:
    found, _ = read(FOX, *linking("[[red_fox]]es", "[[red_fox|vulp_]]ine", "[[red_fox]]es"))
    assert [segments[0] for segments in found.values()] == ["red foxes", "vulp_ine"]


def test_a_redirect_is_a_name_and_pages_without_a_lead_make_no_pair() -> None:
    redirect = page(8, "#REDIRECT [[Red fox]]", title="Vulpes vulpes")
    astray = page(9, "#REDIRECT nowhere", title="Nowhere")
    short = page(10, "Short.\n\n== Life ==\nIt is long, and it is spent in woods and fields.", title="Toad")
    talk = page(11, "Some words on the fox.", title="Talk:Red fox", namespace=1)
    found, reasons = read(FOX, redirect, astray, short, talk, *linking("[[toad|a toad]]", "[[Gone|gone]]"))
    assert found == {"wikipedia/7/link/1": ("Vulpes vulpes", LEAD)}
    assert sorted(set(reasons)) == [
        "no such page",  # Gone
        "no text or short",  # Toad, and the linking pages
        "other namespace",
        "redirect to no page",
    ]


def test_titles_that_mediawiki_takes_for_the_same() -> None:
    assert {canonical(title) for title in ("red fox", "Red_fox", " red  fox_", "Red&#32;fox")} == {"Red fox"}
    assert canonical("iPod") == "IPod"


def test_files_without_links_are_refused() -> None:
    path = Path("wiki_00")
    path.write_text('{"id": "12", "title": "T", "text": "A fox."}\n')
    with pytest.raises(InputError, match="wiki_00: has no links; name an XML dump"):
        list(WIKIPEDIA_LINKS.documents([path]))
