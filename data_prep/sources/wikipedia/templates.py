"""The templates of the English Wikipedia that show words of a sentence; without them the sentence has holes."""

import re

from data_prep.text.language import word_set

_ONE = "{0}"  # the template shows its first argument
_FORMATS = {
    **dict.fromkeys(
        word_set(
            """abbr abbrlink angbr blockquote cquote em ill lang-xx linktext math midsize mvar nihongo nobold nobr
            nowrap quotation quote sc small smallcaps smaller strong tooltip val var vanchor"""
        ),
        _ONE,
    ),
    **dict.fromkeys(("as written", "interlanguage link", "not a typo", "small caps", "visible anchor"), _ONE),
    **dict.fromkeys(("color", "font color", "lang", "rtl-lang", "script"), "{1}"),
    **dict.fromkeys(("mdash", "em dash", "emdash"), "—"),
    **dict.fromkeys(("ndash", "en dash"), "–"),
    **dict.fromkeys(("snd", "snds", "spnd", "spaced ndash", "spaced en dash"), " – "),
    **dict.fromkeys(("nbsp", "space", "spaces", "thinsp"), " "),
    **dict.fromkeys(("c.", "circa"), "c. {0}"),
    **dict.fromkeys(("hms", "uss", "rms", "ss"), "{name} {0}"),
    **dict.fromkeys(("convert", "cvt"), "{quantity}"),
    **dict.fromkeys(("transl", "transliteration"), "{last}"),
    "as of": "As of {0}",
    "'": "'",
    "'s": "'s",
    "·": " ·",
    "!": "|",
    "=": "=",
}
_BETWEEN = word_set("and by or to x - – × +/- ±")  # what joins the two numbers of a range in {{convert}}
_NAMED = re.compile(r"\s*([\w -]{1,30}?)\s*=")


def template_name(start: str) -> str:
    """The name of the template whose content begins with `start`, as `inline_text` knows it."""
    name = start.partition("|")[0].strip().replace("_", " ").lower()
    return "lang-xx" if name.startswith("lang-") else name


def is_inline(start: str) -> bool:
    """Whether the template whose content begins with `start` shows words of a sentence."""
    return template_name(start) in _FORMATS


def inline_text(content: str) -> str:
    """The text that an inline template shows; `content` is what is between its braces, with plain text for links."""
    arguments: list[str] = []
    for part in content.split("|")[1:]:
        named = _NAMED.match(part)
        if not named:
            arguments.append(part.strip())
        elif named[1] in ("text", "quote") or named[1] == str(len(arguments) + 1):
            arguments.append(part[named.end() :].strip())
    filled = (arguments + ["", ""])[:2]
    name = template_name(content)
    last = arguments[-1] if arguments else ""
    return _FORMATS[name].format(*filled, name=name.upper(), last=last, quantity=_quantity(arguments))


def _quantity(arguments: list[str]) -> str:
    """The quantity without its conversion: `5|to|10|km|mi` is 5 to 10 km."""
    ends = 4 if len(arguments) > 2 and arguments[1] in _BETWEEN else 2
    return " ".join(arguments[:ends])
