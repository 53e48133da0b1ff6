"""MediaWiki's parser functions and magic words: `{{formatnum:12345}}`, `{{#if:…}}`, `{{PAGENAME}}`.

The content of each comes with its inner templates expanded. None means that the text is unknown here: it would need
other pages (`{{#invoke:…}}`), the day of reading, or the wiki's statistics.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from deepsiam.data_prep.sources.wikipedia import dates
from deepsiam.data_prep.sources.wikipedia.arithmetic import evaluate
from deepsiam.data_prep.sources.wikipedia.languages import LANGUAGES
from deepsiam.data_prep.sources.wikipedia.marks import has_hole
from deepsiam.data_prep.sources.wikipedia.numbers import grouped, value_of

_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)")
_NUMBER = re.compile(r"\d[\d.,]*")
MOST_PADDING = 500  # characters, as in MediaWiki


class Facts(NamedTuple):
    """What is known of a page besides its markup: its title, and when it was last changed."""

    title: str = ""
    changed: str = ""  # 2004-02-29T23:01:02Z

    @property
    def day(self) -> dates.Day | None:
        """The day of the last change; None if it is not known."""
        found = _TIMESTAMP.match(self.changed)
        year, month, day = (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
        return (year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None


def function_text(content: str, facts: Facts) -> tuple[str | None] | None:
    """Return what a function or magic word shows, in a tuple, for content that is one; None for any other template."""
    head = content.partition("|")[0]
    name, colon, first = head.partition(":")
    name = name.strip()
    if not colon:
        word = _WORDS.get(name)
        return (word(facts),) if word else None
    if name.upper() in _SILENT:
        return ("",)
    if name in _WORDS and name.isupper():
        return (None,)  # {{PAGENAME:another page}}
    function = _FUNCTIONS.get(name.lower())
    if function is None:
        return (None,) if name.startswith("#") else None
    arguments = [first.strip(), *(part.strip() for part in content.split("|")[1:])]
    return (function(arguments),)


def is_function(name: str) -> bool:
    """Return whether a name in lower case is that of a parser function."""
    return name in _FUNCTIONS


def _formatnum(arguments: list[str]) -> str | None:
    number, form = arguments[0], arguments[-1].upper() if len(arguments) > 1 else ""
    if form == "R":
        return number.replace(",", "")
    return number if form == "NOSEP" else _NUMBER.sub(lambda found: grouped(found[0]), number, count=1)


def _plural(arguments: list[str]) -> str | None:
    number = value_of(arguments[0])
    if number is None or len(arguments) < 2:
        return None
    exact = next((form.partition("=")[2] for form in arguments[1:] if form.startswith(f"{arguments[0]}=")), None)
    forms = [form for form in arguments[1:] if not re.match(r"\d+=", form)]
    return exact if exact is not None else (forms[0] if number == 1 else forms[-1]) if forms else ""


def _if(arguments: list[str]) -> str | None:
    if has_hole(arguments[0]):
        return None
    return _at(arguments, 1 if arguments[0] else 2)


def _ifeq(arguments: list[str]) -> str | None:
    one, two = arguments[0], _at(arguments, 1)
    if has_hole(one + two):
        return None
    return _at(arguments, 2 if _equal(one, two) else 3)


def _iferror(arguments: list[str]) -> str | None:
    if has_hole(arguments[0]):
        return None
    return arguments[0] if len(arguments) < 3 else arguments[2]


def _ifexpr(arguments: list[str]) -> str | None:
    result = evaluate(arguments[0])
    return None if result is None else _at(arguments, 2 if result in ("", "0") else 1)


def _switch(arguments: list[str]) -> str | None:
    """Return the value of the first case that equals the first argument; cases without a value share the next one."""
    wanted, default, falling, default_falls = arguments[0], "", False, False
    if has_hole(wanted):
        return None
    for case in arguments[1:]:
        name, equals, value = case.partition("=")
        name, value = name.strip(), value.strip()
        falling = falling or (_equal(name, wanted) and not has_hole(name))
        if not equals:
            default, default_falls = name, default_falls or name == "#default"
        elif falling:
            return value
        elif name == "#default" or default_falls:
            default, default_falls = value, False
    return default


def _equal(one: str, two: str) -> bool:
    if one == two:
        return True
    number, other = value_of(one), value_of(two)
    return number is not None and number == other and "/" not in one + two


def _at(arguments: list[str], index: int) -> str:
    return arguments[index] if index < len(arguments) else ""


def _padded(arguments: list[str], left: bool) -> str:
    text, size, filling = arguments[0], _at(arguments, 1), _at(arguments, 2) or "0"
    missing = min(int(size[:4]), MOST_PADDING) - len(text) if size.isdecimal() else 0
    padding = (filling * max(missing, 0))[: max(missing, 0)]
    return padding + text if left else text + padding


def _tag(arguments: list[str]) -> str | None:
    return "" if arguments[0].lower() in ("ref", "references", "gallery", "templatestyles") else None


_FUNCTIONS: dict[str, Callable[[list[str]], str | None]] = {
    "formatnum": _formatnum,
    "lc": lambda arguments: arguments[0].lower(),
    "uc": lambda arguments: arguments[0].upper(),
    "lcfirst": lambda arguments: arguments[0][:1].lower() + arguments[0][1:],
    "ucfirst": lambda arguments: arguments[0][:1].upper() + arguments[0][1:],
    "plural": _plural,
    "padleft": lambda arguments: _padded(arguments, left=True),
    "padright": lambda arguments: _padded(arguments, left=False),
    "#if": _if,
    "#ifeq": _ifeq,
    "#iferror": _iferror,
    "#ifexpr": _ifexpr,
    "#switch": _switch,
    "#expr": lambda arguments: evaluate(arguments[0]),
    "#language": lambda arguments: LANGUAGES.get(arguments[0].lower()),
    "#tag": _tag,
}
_SILENT = frozenset(("DEFAULTSORT", "DEFAULTSORTKEY", "DEFAULTCATEGORYSORT", "DISPLAYTITLE"))


def _changed(form: Callable[[dates.Day], str]) -> Callable[[Facts], str | None]:
    return lambda facts: form(facts.day) if facts.day else None


_YEAR, _MONTH = _changed(lambda day: str(day[0])), _changed(lambda day: f"{day[1]:02}")
_NAME, _DAY = _changed(lambda day: dates.MONTHS[day[1] - 1]), _changed(lambda day: str(day[2]))
_TITLE: Callable[[Facts], str | None] = lambda facts: facts.title or None  # noqa: E731
_WORDS: dict[str, Callable[[Facts], str | None]] = {
    **dict.fromkeys(("PAGENAME", "FULLPAGENAME", "BASEPAGENAME", "SUBPAGENAME", "ROOTPAGENAME"), _TITLE),
    **dict.fromkeys(("CURRENTYEAR", "LOCALYEAR", "REVISIONYEAR"), _YEAR),
    **dict.fromkeys(("CURRENTMONTH", "LOCALMONTH", "REVISIONMONTH"), _MONTH),
    **dict.fromkeys(("CURRENTMONTHNAME", "LOCALMONTHNAME", "CURRENTMONTHNAMEGEN"), _NAME),
    **dict.fromkeys(("CURRENTDAY", "LOCALDAY", "REVISIONDAY"), _DAY),
    "SITENAME": lambda _: "Wikipedia",
    "NAMESPACE": lambda _: "",
    "!": lambda _: "|",
    "=": lambda _: "=",
}
