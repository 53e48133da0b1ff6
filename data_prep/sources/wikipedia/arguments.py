"""The name and the arguments of a template, as MediaWiki reads them."""

import re
from typing import NamedTuple

MOST = 1000  # arguments without a name that are kept

_NAME = re.compile(r"[\w -]{1,30}")
_PREFIX = re.compile(r"\A\s*(?:template|subst|safesubst|msgnw|raw)\s*:\s*", re.IGNORECASE)


class Arguments(NamedTuple):
    """The arguments of a template, as plain text; a missing one that another follows is ""."""

    template: str
    listed: list[str]  # those without a name or named by a number
    named: dict[str, str]

    def at(self, index: int, default: str = "") -> str:
        """Return an argument without a name, or `default` if it is missing or empty."""
        return (self.listed[index] if index < len(self.listed) else "") or default

    def given(self, *names: str) -> str:
        """Return the first of the named arguments that is not empty; "" if none is."""
        return next((self.named[name] for name in names if self.named.get(name)), "")


def template_name(start: str) -> str:
    """Return the name of the template whose content begins with `start`: in lower case, with single blanks.

    `Template:` and `subst:` do not belong to it.
    """
    return " ".join(_PREFIX.sub("", start.partition("|")[0]).replace("_", " ").lower().split())


def arguments_of(content: str) -> Arguments:
    """Return the arguments in the content of a template, which is between its braces."""
    listed: dict[int, str] = {}
    named: dict[str, str] = {}
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
            named[name] = value.strip()
    last = max((index for index in listed if index <= MOST), default=0)
    return Arguments(template_name(content), [listed.get(index, "") for index in range(1, last + 1)], named)
