"""What the bytes of a file say: UTF-8, UTF-16 or UTF-32, a named encoding, or else the likeliest one."""

import codecs
import re
from collections import Counter

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.text import guess, language_id

GUESS = "guess"
BEGINNING = 1 << 16  # bytes in which NULs are counted
FEW_CHARACTERS = 3  # characters that are no text, and their share: a file with more is not text
FEW_SHARE = 0.01

_MARKS = {  # the mark of UTF-16 begins UTF-32's
    "utf_32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf_16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_LITTLE_SPACES = [(space, 0) for space in b"\t\n\r "]
_BIG_SPACES = [(0, space) for space in b"\t\n\r "]
# controls but white space, U+FFFD, private use, noncharacters; those of C1 are Windows-1252 read as Latin-1
_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]")


def decode(content: bytes, encoding: str, language: str = language_id.ANY_LANGUAGE) -> tuple[str, str]:
    """Return a text without byte-order mark, and the encoding that was guessed; "" for UTF-8 or the named encoding.

    `encoding` is a name that `known` returned, or GUESS; a guess prefers `language`. Raise ValueError,
    which says why, where the bytes are not in the encoding, none can be guessed, or what they say is not text.
    """
    if encoding != GUESS:
        try:
            text, guessed = content.decode("utf-8-sig" if encoding == "utf-8" else encoding), ""
        except UnicodeError as error:
            raise ValueError(f"not {encoding}{_place(error)}") from None
    else:
        text, guessed = _guessed(content, language)
    text = text.removeprefix("\ufeff")
    if not _is_text(text):
        share = 100 * len(_NO_TEXT.findall(text)) / len(text)
        name = guessed or ("UTF-8" if encoding == GUESS else encoding)
        raise ValueError(f"not text in {name}: {share:.0f} % of it are controls or unknown characters")
    return text, guessed


def _guessed(content: bytes, language: str) -> tuple[str, str]:
    if marked := next((name for name, marks in _MARKS.items() if content.startswith(marks)), ""):
        return _decode_wide(content, marked), marked
    problem = None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8{_place(error)}, nor of a known encoding; name it with --encoding"
    if problem is None and _is_text(text):
        return text, ""
    if (name := wide(content)) and _is_text(wide_text := _decode_wide(content, name)):
        return wide_text, name
    if problem is None:
        return text, ""
    if name := guess.likeliest(content, language):
        return guess.decoded(content, name), name
    raise ValueError(problem)


def wide(content: bytes) -> str:
    """Return the kind of UTF-16 or UTF-32 that the places of NULs tell; "" if none.

    Text in UTF-16 has a NUL in each letter of a to z, space and line break: always the first of two bytes, or always
    the second. Where it has spaces, these decide: some Chinese characters have a NUL, too, in the other byte.
    """
    start = content[:BEGINNING]
    counts = [start[place::4].count(0) for place in range(4)]
    nulls, quarter = sum(counts), max(len(start) // 4, 1)
    if nulls < 2 or nulls <= FEW_SHARE * len(start):
        return ""
    if min(counts[2:]) >= 0.9 * quarter and counts[0] < 0.1 * quarter:
        return "utf_32_le"
    if min(counts[:2]) >= 0.9 * quarter and counts[3] < 0.1 * quarter:
        return "utf_32_be"
    pairs = Counter(zip(start[::2], start[1::2], strict=False))
    little, big = (sum(pairs[pair] for pair in ends) for ends in (_LITTLE_SPACES, _BIG_SPACES))
    if not little + big:
        little, big = counts[1] + counts[3], counts[0] + counts[2]
    if max(little, big) < 0.95 * (little + big):
        return ""
    return "utf_16_le" if little > big else "utf_16_be"


def known(name: str) -> str:
    """Return an encoding by Python's name for it, or GUESS; raise InputError for others."""
    if name == GUESS:
        return GUESS
    try:
        codec = codecs.lookup(name)
        "".encode(codec.name)  # refuses rot13 and the like, which do not encode to bytes
    except (LookupError, UnicodeError):
        raise InputError(f"--encoding {name}: not a known encoding; name one as utf-8, cp1252 or latin-1") from None
    return codec.name


def _decode_wide(content: bytes, encoding: str) -> str:
    """Decode UTF-16 or UTF-32; half a character at the end, of a file that was cut off, is left out."""
    width = 4 if encoding.startswith("utf_32") else 2
    return content[: len(content) // width * width].decode(encoding, "replace")


def _is_text(text: str) -> bool:
    odd = sum(1 for _ in _NO_TEXT.finditer(text))  # characters that no text has
    return odd <= FEW_SHARE * len(text) or (odd <= FEW_CHARACTERS and odd <= len(text) / 4)


def _place(error: UnicodeError) -> str:
    return f" at byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else ""
