"""The name and the arguments of a template, as MediaWiki reads them, and the text that it shows."""

import re
from collections.abc import Callable
from typing import NamedTuple

from deepsiam.data_prep.sources.wikipedia.marks import aside
from deepsiam.data_prep.sources.wikipedia.template_table import ASIDES, INVISIBLE, INVISIBLE_NAMES, SHOWN, UNITS

MAX_ARGUMENTS = 1000  # arguments without a name that are kept

_NAME = re.compile(r"[\w -]{1,30}")
_PREFIX = re.compile(r"\A\s*(?:template|subst|safesubst|msgnw|raw)\s*:\s*", re.IGNORECASE)


class Arguments(NamedTuple):
    """The arguments of a template, as plain text; a missing one that another follows is ""."""

    template: str
    listed: list[str]  # those without a name or named by a number
    by_name: dict[str, str]

    def at(self, index: int, default: str = "") -> str:
        """Return an argument without a name, or `default` if it is missing or empty."""
        return (self.listed[index] if index < len(self.listed) else "") or default

    def given(self, *names: str) -> str:
        """Return the first of the named arguments that is not empty; "" if none is."""
        return next((self.by_name[name] for name in names if self.by_name.get(name)), "")


def template_name(start: str) -> str:
    """Return the name of the template whose content begins with `start`: in lower case, with single blanks.

    `Template:` and `subst:` do not belong to it.
    """
    return " ".join(_PREFIX.sub("", start.partition("|")[0]).replace("_", " ").lower().split())


def arguments_of(content: str) -> Arguments:
    """Return the arguments in the content of a template, which is between its braces."""
    listed: dict[int, str] = {}
    by_name: dict[str, str] = {}
    following = 1
    for part in content.split("|")[1:]:
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not _NAME.fullmatch(name):
            listed[following] = part.strip()
            following += 1
        elif name.isdecimal() and name.isascii():
            listed[int(name)] = value.strip()
        else:
            by_name[name] = value.strip()
    last_index = max((index for index in listed if index <= MAX_ARGUMENTS), default=0)
    return Arguments(template_name(content), [listed.get(index, "") for index in range(1, last_index + 1)], by_name)


_WORD = re.compile(r"\w")
_APOSTROPHES = re.compile(r"-?(?:['`\"‘’“”] ?)+-?s?")  # {{'}}, {{'s}}, {{" '}}; a hyphen says where it stands off
_ITEM = re.compile(r"(?<!\s)\s*\n[*#:;]*\s*")
_NOT_SHOWN = re.compile(
    r"image|img|logo|map|caption|signature|alt|size|width|upright|foot|url|website|color|colour|style"
)
_LONG_NUMBER = re.compile(r"(?<![\d.,])\d{4,30}(?![\d,])")
_NOT_SOUNDS = frozenset(("uk", "us", "en", "also", "pron", "lang", "local", "audio", "au", "nz", "ca", "sa"))

# the numbers of a {{convert}}, and their unit; the first two parts of 6|ft|2|in count as numbers
_NUMBER = r"[-+−–]?\.?\d[\d.,/ +]*(?:e[-+−]?\d+)?"
_RANGE = r"[-–]|(?:to|and)\(-\)"
_JOINT = rf"(?:to|and|or)(?: about)?|by|plus|[x×*/+±,]|\+/-|{_RANGE}|ft(?=\|[^|]*\|in\b)|st(?=\|[^|]*\|lb\b)"
_MEASURE = re.compile(rf"({_NUMBER}(?:\|(?:{_JOINT})\|{_NUMBER})*)(?:\|((?:[^\W\d_]|°)[^|()]*)(?:\||$)|$)")
_ANOTHER = ("out", "number", "unit")  # how the `disp` begins that does not show the quantity given


class _Fields(dict[str, str]):
    """The fields of a format, each made when the format asks for it."""

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(open="&#123;", close="&#125;")
        self.arguments = arguments

    def __missing__(self, name: str) -> str:
        return _FIELDS[name](self.arguments)


def _grouped(text: str) -> str:
    return _LONG_NUMBER.sub(lambda digits: f"{int(digits[0]):,}", text)


def _date(arguments: Arguments) -> str:
    """Return a date of year, month and day, 1809-02-12, or one that is written out."""
    return "-".join(f"{value:0>2}" for value in arguments.listed[:3] if value.isdecimal()) or arguments.at(0)


_FIELDS: dict[str, Callable[[Arguments], str]] = {
    "first": lambda arguments: arguments.at(0) or arguments.given("text", "quote"),
    "second": lambda arguments: arguments.at(1) or arguments.given("text"),
    "last": lambda arguments: arguments.given("content", "text") or "".join(arguments.listed[-1:]),
    "all": lambda arguments: "".join(arguments.listed),
    "rest": lambda arguments: ", ".join(filter(None, arguments.listed[1:])),
    "text": lambda arguments: arguments.given("text", "quote", "content") or arguments.at(0),
    "term": lambda arguments: arguments.given("content") or arguments.at(0) or arguments.given("term"),
    "defn": lambda arguments: arguments.given("defn", "content") or arguments.at(0),
    "dots": lambda arguments: " · ".join(filter(None, arguments.listed)),
    "plus": lambda arguments: "+".join(filter(None, arguments.listed)),
    "items": lambda arguments: "\n".join(f"* {text}" for text in arguments.listed if text),
    "syllables": lambda arguments: "-".join(filter(None, arguments.listed)),
    "sounds": lambda arguments: "".join(text for text in arguments.listed if text.lower() not in _NOT_SOUNDS),
    "authors": lambda arguments: " & ".join(arguments.listed[:-1]),
    "ship": lambda arguments: arguments.template.upper(),
    "target": lambda arguments: (  # {{ill|Ziel|de|Target}}, not {{ill|de|Target|Ziel}} as until 2015
        arguments.given("lt", "display") or next((text for text in arguments.listed if len(text) > 3), arguments.at(0))
    ),
    "as_of": lambda arguments: (
        arguments.given("alt") or f"{'as' if arguments.given('lc') else 'As'} of {_date(arguments)}"
    ),
    "date": _date,
    "span": lambda arguments: "–".join([text for text in arguments.listed if text][:2]),
    "money": lambda arguments: _grouped(  # with `million` and other words as given; a second sum makes a range
        "–".join((arguments.at(0), *(text for text in arguments.listed[1:2] if text[:1].isdigit())))
    ),
    "grouped": lambda arguments: _grouped(arguments.at(0)),
    # 1{{frac|1|2}} is 1 1/2
    "fraction": lambda arguments: f" {' '.join(arguments.listed[:-2])} {'/'.join(['1', *arguments.listed][-2:])}",
}


_LINES = [line.split(" <- ") for line in SHOWN.strip("\n").split("\n")]
_FORMATS = {name: shown.replace(r"\n", "\n") for shown, names in _LINES for name in names.split(", ")}
_ASIDES = re.compile(ASIDES)
_INVISIBLE = frozenset(name for line in INVISIBLE.strip().split("\n") for name in line.split(", "))
_INVISIBLE_NAMES = re.compile(INVISIBLE_NAMES)


def template_text(content: str) -> str | None:
    """Return the text that a template shows, None if it is unknown; in `content`, links and templates are text."""
    arguments = arguments_of(content)
    name = arguments.template
    for key in (f"{name}|{arguments.at(0).lower()}", name, f"{name.partition('-')[0]}-*"):
        if key in _FORMATS:
            text = _FORMATS[key].format_map(_Fields(arguments))
            return aside(text) if _ASIDES.fullmatch(name) else text
    if name in ("convert", "cvt"):
        return _measure(arguments)
    if _APOSTROPHES.fullmatch(name):
        return re.sub("[ -]", "", name).replace("`", "'")
    return "" if name in _INVISIBLE or _INVISIBLE_NAMES.fullmatch(name) or not name else None


def _measure(arguments: Arguments) -> str | None:
    """Return a quantity in the unit that the article gives: 8–12 km, 6 ft 2 in."""
    match = _MEASURE.match("|".join(arguments.listed))
    if not match or arguments.by_name.get("disp", "").startswith(_ANOTHER):
        return None
    numbers, unit = re.sub(rf"\|(?:{_RANGE})\|", "–", match[1]), match[2] or ""
    numbers = re.sub(r"(?<=\d)\+(?=\d)", " ", numbers)  # 1+3/4
    for code, text in UNITS.items():
        unit = re.sub(code, text, unit)
    return f"{_grouped(numbers).replace('|', ' ').replace('-', '−')} {unit}".rstrip()


def unknown_name(content: str) -> str:
    """Return the name by which a template whose text is unknown is counted: `inflation`, `#invoke:`."""
    name, colon, _ = template_name(content).partition(":")
    return name + colon


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
