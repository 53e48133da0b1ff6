"""Templates show what their documentation says; what is unknown is known to be unknown."""

import pytest

from deepsiam.data_prep.sources.wikipedia.marks import without_marks
from deepsiam.data_prep.sources.wikipedia.templates import infobox_lines, template_text, unknown_name

SHOWN = {
    # names: any case, underscores, blanks, the namespace, redirects
    "Lang_|grc| ἀναρχία": "ἀναρχία",
    "Template:NoWrap|a b": "a b",
    "subst:nobr|1=A = b": "A = b",
    "lang|2=b|1=a": "b",
    # numbers and units
    "num|-1234567.5": "-1,234,567.5",
    "frac|2": "  1/2",
    "sfrac|3|4": "  3/4",
    "convert|-12000.5|sqft|comma=off": "−12,000.5 sq ft",
    "convert|8|-|12|km2|abbr=on": "8–12 km<sup>2</sup>",
    "convert|-2|to about|1.5e3|C": "−2 to about 1.5e3 °C",
    "convert|10|x|5|x|2|m|ft": "10 x 5 x 2 m",
    "convert|6|ft|2|in|m": "6 ft 2 in",
    "convert|1+3/4|mi": "1 3/4 mi",
    "convert|11|MUSgal|Ml": "11 million US gal",
    "convert|16|e6acre|e6ha": "16 million acres",
    "convert|400|koilbbl/d|m3/d": "400 thousand barrels per day",
    "convert|5": "5",
    # signs, powers, chemistry, music
    "chem|H|2|O": "H2O",
    "Music|Sharp": "♯",
    # money
    "GBP|20": "£20",
    "US$|5 million|long=no": "US$5 million",
    "¥|2000|30000": "¥2,000–30,000",
    # flags, ships
    "flagicon|FRA": "",
    "flagIOCathlete|A. Fox|SWE|1992 Winter": "A. Fox (SWE)",
    "HMS|Ark Royal|R09|6": "HMS Ark Royal",
    # dates
    "birth date and age|1947|04|1|df=y": "1947-04-01",
    "death date and age|1865|4|15|1809|2|12": "1865-04-15",
    "circa|1200": "c. 1200",
    "reign|1952|2022": "r. 1952–2022",
    "as of|2016|5|lc=y": "as of 2016-05",
    "as of|2016|alt=In 2016": "In 2016",
    # languages
    "langx|de|der Fuchs|lit=the fox": "der Fuchs",
    "transliteration|ru|GOST|x": "x",
    "nihongo|Fox|狐|kitsune": "Fox (狐, kitsune)",
    "IPA|fr|ti": "ti",
    "IPAc-en|UK|ə|ˈ|d|oʊ|b|audio=a.ogg": "/əˈdoʊb/",
    "respell|ARD|vark": "ARD-vark",
    # words, links, signs
    "ill|Fox Hill|de|Fuchsberg": "Fox Hill",
    "ill|de|Fuchsberg|Fox Hill": "Fuchsberg",
    "interlanguage link|Fox Hill|de||lt=hill": "hill",
    "key press|Ctrl|C": "Ctrl+C",
    "font|text=words|size=2": "words",
    "not a typo|a|b": "ab",
    "' \"": "'\"",
    "'s": "'s",
    "=": "=",
    "hlist|a|b||c": "a · b · c",
    "US patent|1781541": "U.S. patent 1,781,541",
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
