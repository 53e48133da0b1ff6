"""The words that DeepSpeed (0.19.8) sends to the shells of several hosts, by pdsh and ssh, and what does not arrive.

It puts a word with a blank into double quotes, in which it escapes double quotes alone; any other word it sends as it
is. pdsh replaces %h, %u and %n. The patterns match what these, sh or bash would not pass on.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from glob import glob

from data_prep.common.errors import InputError, printable

_PDSH = re.compile("%[hun%]")
_EXPANSION = r"`|\$[\w({[@*#?$!-]"
_IN_QUOTES = re.compile(rf'{_EXPANSION}|\\(?=["$`\\\n]|$)', re.ASCII)
_GROUP = r"(?:[^{}]|\{[^{}]*\})*"
_BARE = re.compile(
    rf"{_EXPANSION}|[\"'\\\t\n|&;<>()]|^#|^~|^[A-Za-z_]\w*=(?:.*:)?~"
    rf"|\{{{_GROUP},{_GROUP}\}}|\{{(?:-?\d+|\w)\.\.(?:-?\d+|\w)(?:\.\.-?\d+)?\}}",
    re.ASCII,
)


def check(given: Namespace) -> None:
    """Raise InputError if a word of a command line would arrive otherwise on the hosts, which might run part of it.

    Args:
        given: DeepSpeed's options.
    """
    for word in given.user_args:
        if changed := lost(word):
            raise InputError(
                f"{printable(word)!r}: DeepSpeed does not quote {changed} for the hosts' shells: write the value into "
                "the recipe, or choose a name without it"
            )
    for word in (os.getcwd(), sys.executable, given.user_script, given.venv_script or "", given.master_addr):
        if changed := " " if " " in word else _first(_BARE, word):
            raise InputError(
                f"{printable(word)!r}: DeepSpeed does not quote {changed!r} for the hosts' shells: rename it"
            )


def lost(word: str) -> str:
    """Return what of an argument the hosts would not get, in quotes; empty if it arrives unchanged."""
    if not word:
        return "an empty word"
    if found := _first(_PDSH, word) or _first(_IN_QUOTES if " " in word else _BARE, word):
        return repr(found)
    return "the pattern of a file here" if " " not in word and glob(word) not in ([], [word]) else ""


def lost_of_variable(value: str) -> str:
    """Return what of an environment variable the hosts would not get: DeepSpeed does not even escape double quotes."""
    return _first(_IN_QUOTES, value) or '"' * ('"' in value)


def _first(pattern: re.Pattern[str], word: str) -> str:
    found = pattern.search(word)
    return found[0] if found else ""
