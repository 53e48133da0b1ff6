"""The text that a template shows, from the tables of `template_table.py` and the functions of its neighbours."""

import re
from collections.abc import Callable
from functools import partial

from deepsiam.data_prep.sources.wikipedia import dates, quantities, words
from deepsiam.data_prep.sources.wikipedia.arguments import Arguments, arguments_of, template_name, without_prefix
from deepsiam.data_prep.sources.wikipedia.convert import converted, density
from deepsiam.data_prep.sources.wikipedia.functions import Facts, function_text, is_function
from deepsiam.data_prep.sources.wikipedia.languages import COUNTRIES
from deepsiam.data_prep.sources.wikipedia.marks import aside
from deepsiam.data_prep.sources.wikipedia.numbers import grouped
from deepsiam.data_prep.sources.wikipedia.template_table import ASIDES, INVISIBLE, INVISIBLE_NAMES, SHOWN

_WORD = re.compile(r"\w")
_APOSTROPHES = re.compile(r"-?(?:['`\"‘’“”] ?)+-?s?")  # {{'}}, {{'s}}, {{" '}}; a hyphen says where it stands off
_ITEM = re.compile(r"(?<!\s)\s*\n[*#:;]*\s*")
_NOT_SHOWN = re.compile(
    r"image|img|logo|map|caption|signature|alt|size|width|upright|foot|url|website|color|colour|style"
)


class _Fields(dict[str, str]):
    """The fields of a format, each made when the format asks for it."""

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(open="&#123;", close="&#125;")
        self.arguments = arguments

    def __missing__(self, name: str) -> str:
        return _FIELDS[name](self.arguments)


_FIELDS: dict[str, Callable[[Arguments], str]] = {
    "first": lambda arguments: arguments.at(0) or arguments.given("text", "quote"),
    "second": lambda arguments: arguments.at(1) or arguments.given("text"),
    "last": lambda arguments: arguments.given("content", "text") or "".join(arguments.listed[-1:]),
    "all": lambda arguments: "".join(arguments.listed),
    "text": lambda arguments: arguments.given("text", "quote", "content") or arguments.at(0),
    "term": lambda arguments: arguments.given("content") or arguments.at(0) or arguments.given("term"),
    "defn": lambda arguments: arguments.given("defn", "content") or arguments.at(0),
    "dots": lambda arguments: " · ".join(filter(None, arguments.listed)),
    "plus": lambda arguments: "+".join(filter(None, arguments.listed)),
    "items": lambda arguments: "\n".join(f"* {one}" for one in arguments.listed if one),
    "money": quantities.money,
    "span": dates.span,
    "grouped": lambda arguments: grouped(arguments.at(0)),
}


def _formats() -> dict[str, str]:
    formats = {}
    for line in SHOWN.strip("\n").split("\n"):
        shown, _, names = line.partition(" <- ")
        formats.update(dict.fromkeys(names.split(", "), shown.replace(r"\n", "\n")))
    return formats


_FORMATS = _formats()
_FUNCTIONS: dict[str, Callable[[Arguments], str | None]] = {
    "convert": converted,
    "cvt": partial(converted, symbols=True),
    **dict.fromkeys(("pop density", "population density"), density),
    "val": quantities.value,
    "gaps": quantities.gaps,
    "e": quantities.scientific,
    "x10^": quantities.scientific,
    "ordinal": quantities.ordinal,
    "percentage": quantities.percentage,
    "height": quantities.height,
    "duration": quantities.duration,
    "chem": quantities.compound,
    "chem2": quantities.formula,
    "su": quantities.sub_and_sup,
    "coord": quantities.coordinates,
    **dict.fromkeys(("num", "number", "formatnum", "nts"), quantities.number),
    **dict.fromkeys(("frac", "fraction", "sfrac", "frac2"), quantities.fraction),
    **dict.fromkeys(("birth date", "birth date and age", "bda", "dob", "start date", "start date and age"), dates.date),
    **dict.fromkeys(("birth year and age", "end date", "end date and age", "film date", "date", "dts"), dates.date),
    **dict.fromkeys(("death date", "death date and age", "dda", "death year and age"), dates.died),
    **dict.fromkeys(("oldstyledate", "oldstyledatedy", "osd"), dates.old_style),
    "as of": dates.as_of,
    **dict.fromkeys(("circa", "c.", "ca."), words.circa),
    **dict.fromkeys(words.SHIPS, words.ship),
    **dict.fromkeys(("sclass", "sclass2", "sclass-"), words.ship_class),
    **dict.fromkeys(("flag", "flagu", "flagcountry", "flagg", "flag country", "flagioc", "flagpbc"), words.country),
    **dict.fromkeys(("country", "fb", "fb-rt", "fbw", "nft", "cr", "cr-rt", "ru", "ru-rt"), words.country),
    **dict.fromkeys(("flagathlete", "flagiocathlete", "flagmedalist", "flagiocmedalist"), words.medalist),
    **dict.fromkeys(("langx", "lang-x"), words.language),
    **dict.fromkeys(("zh", "korean"), words.labelled),
    **dict.fromkeys(("nihongo", "nihongo2", "nihongo3"), words.nihongo),
    **dict.fromkeys(
        ("ill", "illm", "interlanguage link", "interlanguage link multi", "link-interwiki"), words.interlanguage
    ),
    **dict.fromkeys(("harvtxt", "citet"), words.author_and_year),
    **dict.fromkeys(("marriage", "married"), words.marriage),
    "music": words.music,
    "sic": words.sic,
    "unichar": words.unicode_character,
}
_ASIDES = frozenset(ASIDES.split(", "))
_INVISIBLE = frozenset(name for line in INVISIBLE.strip().split("\n") for name in line.split(", "))
_INVISIBLE_NAMES = re.compile(INVISIBLE_NAMES)


def template_text(content: str, facts: Facts) -> str | None:
    """Return the text that a template shows, None if it is unknown.

    Args:
        content: what is between its braces, with plain text for links and templates.
        facts: what is known of the page.
    """
    content = without_prefix(content)
    if function := function_text(content, facts):
        return function[0]
    arguments = arguments_of(content)
    name = arguments.template
    if name in _FORMATS:
        return _FORMATS[name].format_map(_Fields(arguments))
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](arguments)
    if _APOSTROPHES.fullmatch(name):
        return re.sub("[ -]", "", name).replace("`", "'")
    if name in ("age", "age in years"):
        return dates.age(arguments, facts.day)
    if name.startswith("lang-"):
        return words.language(arguments)
    if name in _ASIDES or name.startswith(("ipa-", "ipac-")):
        text = words.respelled(arguments) if "respell" in name else words.sounds(arguments)
        return aside(text) if text else ""
    if name in _INVISIBLE or _INVISIBLE_NAMES.fullmatch(name) or not name:
        return ""
    return COUNTRIES.get(content.strip())  # {{FRA}}


def unknown_name(content: str) -> str:
    """Return the name by which a template whose text is unknown is counted: `inflation`, `#invoke:`, `currentyear`."""
    name = template_name(content)
    function, colon, _ = name.partition(":")
    return function + colon if function.startswith("#") or is_function(function) else name


def is_infobox(start: str) -> bool:
    """Return whether the template whose content begins with `start` is an infobox."""
    return template_name(start).startswith("infobox")


def infobox_lines(content: str) -> str:
    """Return the rows of an infobox that have words, each a list item `* label: value`."""
    rows = []
    for part in content.split("|")[1:]:
        label, _, value = part.partition("=")
        label, value = label.strip().replace("_", " "), " ".join(_ITEM.sub(", ", value.strip(" \n*")).split())
        if _WORD.search(label) and _WORD.search(value) and not _NOT_SHOWN.search(label.lower()):
            rows.append(f"\n* {label}: {value}")
    return "".join(rows) + "\n"
