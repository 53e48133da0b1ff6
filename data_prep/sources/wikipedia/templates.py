"""The templates of the English Wikipedia that show words of a sentence; without them the sentence has holes."""

import re
from collections.abc import Callable
from typing import NamedTuple

from data_prep.text.language import word_set


class Arguments(NamedTuple):
    """The arguments of a template, as plain text."""

    template: str
    listed: list[str]  # without a name, or named by a number, `text` or `quote`
    named: dict[str, str]


MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_BETWEEN = word_set("and by or to x - – × +/- ±")  # what joins the two numbers of a range in {{convert}}
_SMALL_UNITS = word_set("ch in lb oz yd")  # the second unit of {{convert|6|ft|2|in}}
_NAMED = re.compile(r"\s*([\w -]{1,30}?)\s*=")
_WORD = re.compile(r"\w")
_NUMBER = re.compile(r"[\d.,]+")
_NOT_SHOWN = re.compile(
    r"image|img|logo|map|caption|signature|alt|size|width|upright|foot|url|website|color|colour|style"
)


def _quantity(arguments: Arguments) -> str:
    """Return the quantity without its conversion: `5|to|10|km|mi` is 5 to 10 km, `6|ft|2|in|m` is 6 ft 2 in."""
    listed = arguments.listed
    ends = 4 if len(listed) > 2 and listed[1] in _BETWEEN else 2
    if ends == 2 and len(listed) > 3 and _NUMBER.fullmatch(listed[2]) and listed[3] in _SMALL_UNITS:
        ends = 4
    return " ".join(listed[:ends])


def _date(arguments: Arguments) -> str:
    """Return a date of year, month and day, or one that is written out; in American order, unless `df` is set."""
    listed = [one for one in arguments.listed if one]
    numbers = [int(one) for one in listed[:3] if one.isdecimal() and len(one) < 5]
    if len(numbers) < min(len(listed), 2) or len(numbers) < 2 or not 1 <= numbers[1] <= len(MONTHS):
        return listed[0] if listed else ""
    year, month = str(numbers[0]), MONTHS[numbers[1] - 1]
    if len(numbers) == 2:
        return f"{month} {year}"
    return f"{numbers[2]} {month} {year}" if arguments.named.get("df") else f"{month} {numbers[2]}, {year}"


def _height(arguments: Arguments) -> str:
    """Return a height as written: `m=1.85` is 1.85 m, `ft=6|in=2` is 6 ft 2 in."""
    given = (f"{arguments.named[unit]} {unit}" for unit in ("m", "cm", "ft", "in") if arguments.named.get(unit))
    return " ".join(given)


def _fraction(arguments: Arguments) -> str:
    """Return a fraction: `2` is 1/2, `3|4` is 3/4, `1|3|4` is 1 3/4."""
    match arguments.listed:
        case [whole, over, under, *_]:
            return f"{whole} {over}/{under}"
        case [over, under]:
            return f"{over}/{under}"
        case [under]:
            return f"1/{under}"
    return ""


_ONE = "{0}"  # the template shows its first argument
_FORMATS: dict[str, str | Callable[[Arguments], str]] = {
    **dict.fromkeys(
        word_set(
            """abbr abbrlink angbr blockquote cquote em iast ill lang-xx linktext math midsize mvar nihongo nobold nobr
            noitalic nowrap quotation quote sc small smallcaps smaller strong tooltip val var vanchor vr"""
        ),
        _ONE,
    ),
    **dict.fromkeys(("as written", "baseball year", "interlanguage link", "not a typo", "small caps"), _ONE),
    **dict.fromkeys(("visible anchor", "start-date", "end-date"), _ONE),
    **dict.fromkeys(("color", "font color", "lang", "langx", "native name", "rtl-lang", "script"), "{1}"),
    **dict.fromkeys(("resize", "transl", "transliteration"), "{last}"),
    **dict.fromkeys(("mdash", "em dash", "emdash"), "—"),
    **dict.fromkeys(("ndash", "en dash"), "–"),
    **dict.fromkeys(("snd", "snds", "spnd", "spaced ndash", "spaced en dash"), " – "),
    **dict.fromkeys(("nbsp", "space", "spaces", "thinsp"), " "),
    **dict.fromkeys(("c.", "circa"), "c. {0}"),
    **dict.fromkeys(("hms", "uss", "rms", "ss"), "{name} {0}"),
    "ship": "{0} {1}",
    **dict.fromkeys(("convert", "cvt"), _quantity),
    **dict.fromkeys(("birth date", "birth date and age", "death date", "death date and age", "date", "dts"), _date),
    **dict.fromkeys(("start date", "start date and age", "end date", "film date", "birth-date", "death-date"), _date),
    **dict.fromkeys(("frac", "fraction", "sfrac"), _fraction),
    "height": _height,
    "us$": "US${0}",
    "£": "£{0}",
    "€": "€{0}",
    "as of": "As of {0}",
    "'": "'",
    "'s": "'s",
    "·": " ·",
    "!": "|",
    "=": "=",
}


def template_name(start: str) -> str:
    """Return the name of the template whose content begins with `start`, as `inline_text` knows it."""
    name = start.partition("|")[0].strip().replace("_", " ").lower()
    return "lang-xx" if name.startswith("lang-") else name


def is_inline(start: str) -> bool:
    """Return whether the template whose content begins with `start` shows words of a sentence."""
    return template_name(start) in _FORMATS


def inline_text(content: str) -> str:
    """Return the text that an inline template shows; `content` is between its braces, with plain text for links."""
    arguments = _arguments(content)
    shown = _FORMATS[arguments.template]
    if not isinstance(shown, str):
        return shown(arguments)
    listed = arguments.listed
    filled = (listed + ["", ""])[:2]
    return shown.format(*filled, name=arguments.template.upper(), last=listed[-1] if listed else "")


def is_infobox(start: str) -> bool:
    """Return whether the template whose content begins with `start` is an infobox."""
    return template_name(start).startswith("infobox")


def infobox_lines(content: str) -> str:
    """Return the rows of an infobox that have words, each a list item `* label: value`."""
    rows = []
    for part in content.split("|")[1:]:
        label, _, value = part.partition("=")
        label, value = label.strip().replace("_", " "), " ".join(value.split())
        if _WORD.search(label) and _WORD.search(value) and not _NOT_SHOWN.search(label.lower()):
            rows.append(f"\n* {label}: {value}")
    return "".join(rows) + "\n"


def _arguments(content: str) -> Arguments:
    listed: list[str] = []
    given: dict[str, str] = {}
    for part in content.split("|")[1:]:
        name = _NAMED.match(part)
        if not name:
            listed.append(part.strip())
        elif name[1] in ("text", "quote") or name[1] == str(len(listed) + 1):
            listed.append(part[name.end() :].strip())
        else:
            given[name[1]] = part[name.end() :].strip()
    return Arguments(template_name(content), listed, given)
