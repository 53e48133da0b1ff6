"""Templates show what is documented; where one is unknown, its sentence goes, and nothing else; links name pages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.wikipedia.formulas import formula_text
from deepsiam.data_prep.sources.wikipedia.links import BEST_NAMES, WIKIPEDIA_LINKS, canonical
from deepsiam.data_prep.sources.wikipedia.marks import without_marks
from deepsiam.data_prep.sources.wikipedia.templates import infobox_lines, template_text, unknown_name
from deepsiam.data_prep.sources.wikipedia.wikitext import plain
from tests.data_prep.sources.sound import sound
from tests.data_prep.sources.wikipedia.test_xml_export import dump, page


@pytest.mark.parametrize(
    ("markup", "kept", "unknown"),
    [
        ("One. It is {{foo|3}} long. Two.", ["One. Two."], ["foo"]),
        ("One. {{foo|It}} is long. Two.", ["One. Two."], ["foo"]),
        ("One. ''{{foo|Fox}}''s run. Two.", ["One. Two."], ["foo"]),
        ("* {{foo|It}} – 3 medals\n* Two", ["Two"], ["foo"]),
        ("* ''{{foo}}'' (UK)\n* Two", ["Two"], ["foo"]),
        ("It is, e.g. by Mr. Fox, {{foo}} long at 3 p.m. by J. P. Hale. Two.", ["Two."], ["foo"]),
        ("It is {{foo}} and {{bar}}. Two is {{bar}}.", [], ["foo", "bar"]),
        ("It is {{nowrap|a {{foo}} b}}. Two.", ["Two."], ["foo"]),
        ("It is {{#if:{{foo}}|a|b}}. Two.", ["Two."], ["#if:"]),
        ("It is [[fox|the {{foo}} one]]. Two.", ["Two."], ["foo"]),
        ("It is\n{{foo|\n3}}\nlong. Two.", ["Two."], ["foo"]),
        ("It is\n: <math>\\int</math>\nwhere it is. Two.", ["Two."], ["<math>"]),
        ("It is\n: <math>\\int</math>.\nTwo.", ["Two."], ["<math>"]),
        ("It has (with {{foo}}) a tail. Two.", ["Two."], ["foo"]),
        # no sentence needs these
        ("{{foo|a\n|b}}\nOne. Two.\n{{foo}}", ["One. Two."], []),
        ("{{foo}} '''Foxes''' run.", ["Foxes run."], []),
        ("One.{{foo}} Two.{{foo}}{{bar}}\n\nThree. {{foo}}", ["One. Two.", "Three."], []),
        ("Fox ({{foo}}; {{bar|b}} {{foo}}, 1800–1859) ran ({{foo}}).", ["Fox (1800–1859) ran."], []),
        ("One:\n: {{foo}}\nTwo.", ["One:", "Two."], []),
        ("A fox{{citation needed}} ran{{sfn|A|2001}}, {{clarify|date=May}} so.", ["A fox ran, so."], []),
        ("A [[File:a.jpg|thumb|A {{foo}} b]]fox<ref>{{foo}}</ref> ran.\n{|\n| {{foo}}\n|}", ["A fox ran."], []),
        ("One.\n==See also==\n* It is {{foo}} long.", ["One."], []),
    ],
)
def test_a_sentence_with_a_hole_is_dropped_and_counted(markup: str, kept: list[str], unknown: list[str]) -> None:
    text = plain(markup)
    assert text.segments == kept
    assert text.unknown == unknown


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        # pronunciations are left out in brackets
        ("Foxes ({{IPAc-en|f|ɒ|k|s}} {{respell|FOKS}}; {{lang-de|Fuchs}}) run.", "Foxes (Fuchs) run."),
        ("Foxes (pronounced {{IPA|/fɒks/}}, or {{IPA-de|fʊks}}) run.", "Foxes run."),
        ("Foxes ({{lang-ru|лиса}} {{IPA-ru|lʲɪˈsa|}}) run.", "Foxes (лиса) run."),
        ("As {{IPA|/fɒks/}} it begins with {{IPAslink|f}}.", "As /fɒks/ it begins with /f/."),
        # fractions stay apart from the digits before them; bars and signs of inner templates are text
        ("About 1{{frac|1|2}} or {{frac|1|2}}, {{convert|5{{frac|1|2}}|in|mm}}.", "About 1 1/2 or 1/2, 5 1/2 in."),
        ("A {{nowrap|{{nowrap|a {{=}} b}} {{!}} c}}.", "A a = b | c."),
    ],
)
def test_templates_show_their_text(markup: str, text: str) -> None:
    assert plain(markup).segments == [text]


def test_blocks_keep_what_they_contain() -> None:
    page = (
        "{{glossary}}\n{{term|Fox}}\n{{defn|An animal{{cn}} that runs.}}\n{{glossary end}}\n"
        "{{div col|colwidth=20em}}\n* One\n* Two\n{{div col end}}\n"
        "{{columns-list|colwidth=30em|\n* Three\n* Four\n}}\n"
        "He said: {{blockquote|Run, fox.|A. Hale}} It ran.\n<poem>\nLine one\nLine two\n</poem>\n{{poemquote|\nA\nB}}"
    )
    assert plain(page).segments == [
        *("Fox", "An animal that runs.", "One", "Two", "Three", "Four"),
        *("He said:", "Run, fox.", "It ran.", "Line one Line two", "A B"),
    ]


@pytest.mark.parametrize(
    "text", ["\x02", "\x020\x03", "\x02999\x03", "\x04a\x05", "&#2;0&#3;", "Name", "<nowiki>\x020\x03</nowiki>"]
)
def test_text_cannot_pass_for_a_mark(text: str) -> None:
    """A page that contains marks loses only their characters."""
    result = plain(f"One {text} two. It is {{{{foo}}}} long. Name is three {text}.")
    (segment,) = result.segments
    assert segment.startswith("One ")
    assert "Name is three" in segment
    assert "It is" not in segment
    assert result.unknown == ["foo"]


PARTS = ["{{foo}}", "{{IPA|a}}", ". ", "\n", ": ", "* ", "A ", "a ", "{{lang-de|", "}}", "''", "==", *"(),é\x02"]


@given(st.lists(st.sampled_from(PARTS), max_size=40).map("".join))
def test_no_mark_is_left(markup: str) -> None:
    text = plain(markup)
    assert not set("".join(text.segments)) & set("\x02\x03\x04\x05")
    assert set(text.unknown) <= {"foo"}


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
    links = ["[[red fox|the fox]]", "[[red fox|the fox]] [[red fox|the fox]]", *["[[Red_fox|Reynard]]"] * 3]
    links += ["[[red&nbsp;fox|''V. vulpes'']]", "[[Red fox]]", "[[Red fox|The Fox]]", "[[Red fox|zorro]]"]
    found, _ = read(FOX, *linking(*links))
    assert found == {
        "wikipedia/7/link/1": ("Reynard", LEAD),  # equal, as a page counts once: the first by the letters
        "wikipedia/7/link/2": ("the fox", LEAD),  # the commonest spelling
        "wikipedia/7/link/3": ("V. vulpes", LEAD),
    }
    assert len(found) == BEST_NAMES


@pytest.mark.parametrize(
    "link",
    [
        *("[[Red fox]]", "[[red Fox|RedFox]]", "[[Red fox|1998]]", "[[Red fox#Life|its life]]", "[[Other|another]]"),
        *("[[:Category:Red fox|a category]]", "[[Red fox|an open link", "[[Red fox|{{template}}]]"),
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
    # of Gone, of Toad and the linking pages, of Talk, of Nowhere
    assert {*reasons} == {"no such page", "no text or short", "other namespace", "redirect to no page"}


def test_titles_that_mediawiki_takes_for_the_same() -> None:
    assert {canonical(title) for title in ("red fox", "Red_fox", " red  fox_", "Red&#32;fox")} == {"Red fox"}
    assert canonical("iPod") == "IPod"


def test_files_without_links_are_refused() -> None:
    path = Path("wiki_00")
    path.write_text('{"id": "12", "title": "T", "text": "A fox."}\n')
    with pytest.raises(InputError, match="wiki_00: has no links; name an XML dump"):
        list(WIKIPEDIA_LINKS.documents([path]))


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        ("E=mc^2", "E=mc^2"),
        (r"\alpha \le 10^{-6}", "α ≤ 10^-6"),
        (r"x_{n+1} \in \Omega", "x_(n+1) ∈ Ω"),
        (r"\frac{1}{2}\sqrt{a+b}", "1/2√(a+b)"),
        (r"\mathrm{SS}_\text{Total}", "SS_Total"),
        (r"\int_0^1 x\,dx", None),
        (r"\frac{\frac{a}{b}}{c}", None),
        ("x" * 1000, None),
    ],
)
def test_plain_formulas_are_shown(latex: str, text: str | None) -> None:
    assert formula_text(latex) == text


SHOWN = {
    # names: any case, underscores, blanks, the namespace, redirects
    "Lang_|grc| ἀναρχία": "ἀναρχία",
    "Template:NoWrap|a b": "a b",
    "subst:nobr|1=A = b": "A = b",
    "lang|2=b|1=a": "b",
    "num|-1234567.5": "-1,234,567.5",
    "convert|6|ft|2|in|m": "6 ft 2 in",
    "convert|5": "5",
    # numbers and units
    "frac|2": "  1/2",
    "sfrac|3|4": "  3/4",
    "convert|-12000.5|sqft|comma=off": "−12,000.5 sq ft",
    "convert|8|-|12|km2|abbr=on": "8–12 km<sup>2</sup>",
    "convert|-2|to about|1.5e3|C": "−2 to about 1.5e3 °C",
    "convert|10|x|5|x|2|m|ft": "10 x 5 x 2 m",
    "convert|1+3/4|mi": "1 3/4 mi",
    "convert|11|MUSgal|Ml": "11 million US gal",
    "convert|400|koilbbl/d|m3/d": "400 thousand barrels per day",
    # signs, powers, chemistry, music
    "chem|H|2|O": "H2O",
    "Music|Sharp": "♯",
    # money
    "US$|5 million|long=no": "US$5 million",
    "¥|2000|30000": "¥2,000–30,000",
    "flagicon|FRA": "",
    "flagIOCathlete|A. Fox|SWE|1992 Winter": "A. Fox (SWE)",
    "HMS|Ark Royal|R09|6": "HMS Ark Royal",
    # dates
    "birth date and age|1947|04|1|df=y": "1947-04-01",
    "circa|1200": "c. 1200",
    "reign|1952|2022": "r. 1952–2022",
    "as of|2016|5|lc=y": "as of 2016-05",
    "as of|2016|alt=In 2016": "In 2016",
    # languages
    "langx|de|der Fuchs|lit=the fox": "der Fuchs",
    "transliteration|ru|GOST|x": "x",
    "IPA|fr|ti": "ti",
    "IPAc-en|UK|ə|ˈ|d|oʊ|b|audio=a.ogg": "/əˈdoʊb/",
    "respell|ARD|vark": "ARD-vark",
    # words, links, signs
    "ill|Fox Hill|de|Fuchsberg": "Fox Hill",
    "ill|de|Fuchsberg|Fox Hill": "Fuchsberg",
    "interlanguage link|Fox Hill|de||lt=hill": "hill",
    "' \"": "'\"",
    "'s": "'s",
    "=": "=",
    "key press|Ctrl|C": "Ctrl+C",
    "font|text=words|size=2": "words",
    "not a typo|a|b": "ab",
    "nihongo|Fox|狐|kitsune": "Fox (狐, kitsune)",
    "hlist|a|b||c": "a · b · c",
    "harvtxt|Boolos|Jeffrey|1974": "Boolos & Jeffrey (1974)",
    # blocks
    "ubl|a|b": "\n* a\n* b\n",
    "columns-list|3|\n* a": "\n* a\n",
    "quote|text=A fox.|by=B": "\n\nA fox.\n\n",
    "term|Fox": "\n; Fox\n",
    "defn|An animal": "\n: An animal\n",
    # references, notes for editors, settings
    **dict.fromkeys(("#tag:ref|a note", "DEFAULTSORT:Fox, Red"), ""),
    **dict.fromkeys(
        ("citation needed|date=May 2010", "cn", "sfn|Fox|2001|p=3", "efn|a note", "Cite web|url=http://a"), ""
    ),
    **dict.fromkeys(("better source needed", "who?", "clarify inline", "Use dmy dates|date=a", "Infobox fox|a=b"), ""),
}


@pytest.mark.parametrize("content", SHOWN)
def test_a_template_shows_what_its_documentation_says(content: str) -> None:
    shown = template_text(content)
    assert shown is not None
    assert without_marks(shown) == SHOWN[content]


UNKNOWN = [
    *(
        "inflation|US|5|1929",
        "#invoke:Fox|run|1",
        "#if:a|b",
        "formatnum:1234",
        "PAGENAME",
        ":Fox",
        "XYZ",
        "{0}|{first}",
    ),
    *("convert|many|km", "convert", "convert|1|2|3", "convert|10|unknown(-)|5|m", "music|no such sign", "val|5"),
    *(f"convert|5|km|mi|disp={shown}" for shown in ("out", "output only", "number", "unit")),
]


@pytest.mark.parametrize("content", UNKNOWN)
def test_what_a_template_shows_may_be_unknown(content: str) -> None:
    assert template_text(content) is None


def test_arguments_are_never_read_as_formats() -> None:
    assert template_text("circa|{0}{name}") == "c. {0}{name}"
    assert template_text("nowrap|{first.__class__}") == "{first.__class__}"


def test_unknown_templates_have_short_names() -> None:
    assert unknown_name(" Inflation_calc |US") == "inflation calc"
    assert unknown_name("#invoke:Fox|run") == "#invoke:"
    assert unknown_name("formatnum:x") == "formatnum:"


def test_a_list_in_an_infobox_is_one_row() -> None:
    assert infobox_lines("Infobox fox|food=\n* mice\n* grapes\n|image=a.jpg") == "\n* food: mice, grapes\n"
