"""The normal form of text: Unicode NFC without control and invisible characters."""

import html
import re
import unicodedata

from deepsiam.data_prep.text import characters

_C1 = re.compile(r"[\x80-\x9f]")  # no text has these controls: they are bytes of Windows-1252 that were read as Latin-1
_WINDOWS = {byte: character for byte in range(0x80, 0xA0) if (character := bytes([byte]).decode("cp1252", "ignore"))}
_LATE_TABLE = {ord(sign): "" if sign == characters.SOFT_HYPHEN else " " for sign in characters.LATE_CHARACTERS}
_LATE_ONES = re.compile(f"[{characters.LATE_CHARACTERS}]")
_BROKEN_WORD = re.compile("(?<!Ã)\u00ad *\n *")  # at the end of a line
MOST_MARKS = 30  # on one letter, as in Unicode's stream-safe text; NFC takes quadratic time for longer runs
_MARKS = re.compile(rf"[^\w\x00-\u02ff]{{{MOST_MARKS + 1},}}")
_LONG_REFERENCE = re.compile(r"&#[0-9]{8,};?")  # not a character; html.unescape raises ValueError from 4,300 digits on


def unescape(text: str) -> str:
    """Replace `&amp;`, `&#38;` and all other HTML references by their characters; any text is accepted."""
    return html.unescape(_LONG_REFERENCE.sub(" ", text))


def normalise(text: str) -> str:
    """Return the normal form: Unicode NFC, line breaks kept, at most MOST_MARKS marks on a letter.

    Control and invisible characters become what the table of characters.py says; those of U+0080 to U+009F that
    Windows-1252 has as characters become these characters.
    """
    text = legible(text)
    return legible(text.translate(_LATE_TABLE)) if _LATE_ONES.search(text) else text


def legible(text: str) -> str:
    """Normalise as `normalise`, but keep soft hyphens and the five bytes that Windows-1252 lacks.

    The repair of mojibake needs them: `Ã` and a soft hyphen are the bytes of `í`.
    """
    text = text.replace("\r\n", "\n")
    if _C1.search(text):
        text = text.translate(_WINDOWS)
    text = characters.settle(text)
    if characters.SOFT_HYPHEN in text:
        text = _BROKEN_WORD.sub(characters.SOFT_HYPHEN, text)
    text = _MARKS.sub(_fewer_marks, text)
    return _MARKS.sub(_fewer_marks, unicodedata.normalize("NFC", text))  # NFC splits some marks in two


def one_line(text: str) -> str:
    """Return the normal form of a text with single blanks in place of all white space."""
    return " ".join(normalise(text).split())


def legible_line(text: str) -> str:
    """Return the `legible` form of a text with single blanks in place of all white space."""
    return " ".join(legible(text).split())


def _fewer_marks(run: re.Match[str]) -> str:
    marks = 0
    result = []
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MOST_MARKS:
            result.append(character)
    return "".join(result)


def fold(text: str) -> str:
    """Return a text without case, spacing and joiners: equal for texts that differ only in these."""
    return " ".join(characters.visible(text).casefold().split())
