"""Types for command-line arguments: each raises ArgumentTypeError for what it does not accept."""

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path

MOST_PORT = 65535
DIGITS = 15  # of any number of something; JSON holds them exactly


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if text.isdecimal() and len(text) > DIGITS:
        raise argparse.ArgumentTypeError(f"{text[:DIGITS]}… is too large: it has more than {DIGITS} digits")
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def seed(text: str) -> int:
    """Parse a whole number from 0 that fits 63 bits."""
    if not text.isdecimal() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2^63 - 1")
    return int(text)


def port_number(text: str) -> int:
    """Parse a TCP port number above 0."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_PORT):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to {MOST_PORT}")
    return int(text)


def positive_number(text: str) -> float:
    """Parse a finite number above 0."""
    return _number(text, lambda value: 0 < value < math.inf, " above 0")


def share(text: str) -> float:
    """Parse a number from 0 up to but not including 1."""
    return _number(text, lambda value: 0 <= value < 1, " from 0 to below 1")


def margin(text: str) -> float:
    """Parse a finite number, 0 or above."""
    return _number(text, lambda value: 0 <= value < math.inf, ", 0 or above")


def _number(text: str, is_valid: Callable[[float], bool], bounds: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan  # within no bounds
    if not is_valid(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number{bounds}")
    return value


def pattern(text: str) -> re.Pattern[str]:
    """Compile a case-insensitive regular expression."""
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression ({error})") from None


def port(text: str) -> int:
    """Parse a port number, or 0 for any free port."""
    if not text.isdecimal() or int(text) > MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, a whole number up to {MOST_PORT}")
    return int(text)


def named(text: str) -> str:
    """Accept a name that is not empty: an empty one, from an unset variable, would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: name a folder")
    return text


def folder(text: str) -> Path:
    """Parse the path of a folder, whose name may not be empty."""
    return Path(named(text))
