"""Templates show what their documentation says; what is unknown is known to be unknown."""

import pytest

from deepsiam.data_prep.sources.wikipedia.functions import Facts
from deepsiam.data_prep.sources.wikipedia.marks import without_marks
from deepsiam.data_prep.sources.wikipedia.templates import infobox_lines, template_text, unknown_name

FACTS = Facts("Fox", "2004-02-29T23:01:02Z")

SHOWN = {
    # names: any case, underscores, blanks, the namespace, redirects
    "Lang_|grc| ἀναρχία": "ἀναρχία",
    "Template:NoWrap|a b": "a b",
    "subst:nobr|1=A = b": "A = b",
    "lang|2=b|1=a": "b",
    # numbers and units
    "val|1.67|e=-27|u=kg": "1.67×10<sup>−27</sup> kg",
    "val|938.3|ul=MeV": "938.3 MeV",
    "val|299792458|u=m/s|fmt=commas": "299,792,458 m/s",
    "val|12.3|0.4|e=5|u=J.s-1": "(12.3±0.4)×10<sup>5</sup> J⋅s<sup>−1</sup>",
    "val|1.2345|(20)|up=s": "1.2345(20) /s",
    "val|5|1|2": "5+1−2",
    "val|e=18|ul=e": "10<sup>18</sup> e",
    "val|45|u=deg": "45°",
    "val|20|u=degC": "20 °C",
    "val|3|p=~|s=?": "~3?",
    "num|-1234567.5": "−1,234,567.5",
    "gaps|3.141|592|65": "3.14159265",
    "e|9": "×10<sup>9</sup>",
    "frac|2": "<fraction>1/2",
    "sfrac|3|4": "<fraction>3/4",
    "Frac|1|3|4": "1 3/4",
    "ordinal|12": "12th",
    "ordinal|1022": "1,022nd",
    "percentage|1|3": "33%",
    "percentage|1|3|1": "33.3%",
    "height|ft=6|in=2|precision=0": "6 ft 2 in",
    "height|m=1.85": "1.85 m",
    "duration|m=3|s=7": "3:07",
    "coord|13|19|N|169|9|W|type:event": "13°19′N 169°9′W",
    "coord|52.5|-13.4|display=inline,title": "52.5°N 13.4°W",
    "coord|57|18|22|N|4|27|32|E|display=title": "",
    "pop density|1000|250|km2|sqmi": "4/km<sup>2</sup> (10/sq mi)",
    # signs, powers, chemistry, music
    "sup|8": "<sup>8</sup>",
    "su|p=+|b=2": "<sub>2</sub><sup>+</sup>",
    "CO2": "CO<sub>2</sub>",
    "chem|SO|4|2-": "SO4<sup>2−</sup>",
    "chem|H|2|O": "H2O",
    "chem2|H2SO4": "H2SO4",
    "chem2|SO4(2-)": "SO4<sup>2−</sup>",
    "chem2|CuSO4*5H2O": "CuSO4·5H2O",
    "chem2|2 H2 + O2 -> 2 H2O": "2 H2 + O2 → 2 H2O",
    "music|flat": "♭",
    "Music|sharp": "♯",
    "music|natural": "♮",
    "music|time|6|8": "6/8",
    "sqrt|2": "√2",
    # money
    "GBP|20": "£20",
    "INR|500": "₹500",
    "US$|5 million|long=no": "US$5 million",
    "EUR|1250000": "€1,250,000",
    "¥|200|300": "¥200–300",
    "SEK|40": "SEK 40",
    # flags, ships
    "flag|France": "France",
    "flagcountry|GER|empire": "Germany",
    "ITA": "Italy",
    "flagicon|FRA": "",
    "flagIOCathlete|A. Fox|SWE|1992 Winter": "A. Fox (Sweden)",
    "USS|Fox|DD-1": "USS Fox (DD-1)",
    "HMS|Ark Royal|R09|6": "HMS Ark Royal",
    "HMS|Ark Royal|R09|2": "Ark Royal",
    "ship|RMS|Titanic": "RMS Titanic",
    "ship||Bismarck": "Bismarck",
    "sclass|Iowa|battleship": "Iowa-class battleship",
    # dates
    "birth date and age|1947|04|1|df=y": "1 April 1947",
    "death date|1865|4|15|mf=yes": "April 15, 1865",
    "death date and age|1865|4|15|1809|2|12": "April 15, 1865 (aged 56)",
    "start date|1929|5": "May 1929",
    "start date|1929": "1929",
    "birth-date|12 July 1809": "12 July 1809",
    "OldStyleDate|7 November|1917|25 October": "7 November [O.S. 25 October] 1917",
    "circa|1200": "c. 1200",
    "c.|1200|1250": "c. 1200 – c. 1250",
    "fl.|1200": "fl. 1200",
    "reign|1952|2022": "r. 1952–2022",
    "as_of|2016": "As of 2016",
    "as of|2016|5|2|lc=y": "as of 2 May 2016",
    "as of|2016|alt=In 2016": "In 2016",
    "age|1969|7|20": "34",
    "age|1969|7|20|1970|7|19": "0",
    # languages
    "Lang-el|ἀρχή|translit=archḗ|lit=beginning": "Greek: ἀρχή, romanized: archḗ, lit. 'beginning'",
    "langx|de|der Fuchs|lit=the fox": "German: der Fuchs, lit. 'the fox'",
    "lang-xyz|a": "a",
    "lang-de|Fuchs|label=none": "Fuchs",
    "transliteration|ru|GOST|x": "x",
    "nihongo|Fox|狐|kitsune": "Fox (狐, kitsune)",
    "zh|s=狐|p=hú": "simplified Chinese: 狐; pinyin: hú",
    "angbr|a": "⟨a⟩",
    "IPA|/ti/": "/ti/",
    "IPA-fr|ti|lang": "[ti]",
    "IPAc-en|UK|ə|ˈ|d|oʊ|b|audio=a.ogg": "/əˈdoʊb/",
    "IPAc-en|ch|ng": "/tʃŋ/",
    "respell|ARD|vark": "ARD-vark",
    # words, links, signs
    "ill|Fox Hill|de|Fuchsberg": "Fox Hill",
    "ill|de|Fuchsberg|Fox Hill|the hill": "the hill",
    "interlanguage link|Fox Hill|de||lt=hill": "hill",
    "sortname|Ann|Fox": "Ann Fox",
    "abbr|DNA|deoxyribonucleic acid": "DNA",
    "code|ls -l": "ls -l",
    "key press|Ctrl|C": "Ctrl+C",
    "color|red|words": "words",
    "font|text=words|size=2": "words",
    "sic|teh": "teh [sic]",
    "sic|teh|hide=y": "teh",
    "not a typo|a|b": "ab",
    "'": "'",
    "' \"": "'\"",
    "'s": "'s",
    "=": "=",
    "!": "|",
    "nbsp": " ",
    "spaced ndash": " – ",
    "em dash": "—",
    "hlist|a|b||c": "a · b · c",
    "ISBN|0-1": "ISBN 0-1",
    "US patent|1781541": "U.S. patent 1,781,541",
    "harvtxt|Boolos|Jeffrey|1974": "Boolos & Jeffrey (1974)",
    "unichar|00A9": "U+00A9 © COPYRIGHT SIGN",
    # blocks
    "ubl|a|b": "\n* a\n* b\n",
    "plainlist|\n* a\n* b": "\n* a\n* b\n",
    "columns-list|3|\n* a": "\n* a\n",
    "quote|text=A fox.|by=B": "\n\nA fox.\n\n",
    "poemquote|One\nTwo": "\n\nOne\nTwo\n\n",
    "term|Fox": "\n; Fox\n",
    "defn|An animal": "\n: An animal\n",
    "glossary": "",
    # references, notes for editors
    **dict.fromkeys(
        ("citation needed|date=May 2010", "cn", "sfn|Fox|2001|p=3", "efn|a note", "Cite web|url=http://a"), ""
    ),
    **dict.fromkeys(("better source needed", "who?", "clarify inline", "Use dmy dates|date=a", "Infobox fox|a=b"), ""),
}


@pytest.mark.parametrize("content", SHOWN)
def test_a_template_shows_what_its_documentation_says(content: str) -> None:
    shown = template_text(content, FACTS)
    assert shown is not None
    assert without_marks(shown) == SHOWN[content]


@pytest.mark.parametrize(
    "content",
    [
        "inflation|US|5|1929",
        "#invoke:Fox|run|1",
        "#time:Y",
        "NUMBEROFARTICLES",
        ":Fox",
        "convert|many|km",
        "val",
        "music|no such sign",
        "ordinal|first",
        "percentage|1|0",
        "percentage|1|3|²",
        f"percentage|1|3|{'9' * 5000}",
        "unichar|zz",
        "lang-de",
        "age|1969",
        "XYZ",
        "{0}|{first}",
    ],
)
def test_what_a_template_shows_may_be_unknown(content: str) -> None:
    assert template_text(content, FACTS) is None


def test_what_depends_on_the_day_is_unknown_without_one() -> None:
    assert template_text("age|1969|7|20", Facts("Fox")) is None
    for changed in ("yesterday", "2004-13-29T01:02:03Z", "2004-00-29T01:02:03Z", "2004-02-32T01:02:03Z"):
        assert template_text("CURRENTYEAR", Facts("Fox", changed)) is None
        assert template_text("CURRENTMONTHNAME", Facts("Fox", changed)) is None


def test_arguments_are_never_read_as_formats() -> None:
    assert template_text("circa|{0}{name}", FACTS) == "c. {0}{name}"
    assert template_text("nowrap|{first.__class__}", FACTS) == "{first.__class__}"


def test_unknown_templates_have_short_names() -> None:
    assert unknown_name(" Inflation_calc |US") == "inflation calc"
    assert unknown_name("#invoke:Fox|run") == "#invoke:"
    assert unknown_name("formatnum:x") == "formatnum:"


def test_a_list_in_an_infobox_is_one_row() -> None:
    assert infobox_lines("Infobox fox|food=\n* mice\n* grapes\n|image=a.jpg") == "\n* food: mice, grapes\n"
