"""What happens to each Unicode character: the table of docs/characters.md.

Invisible characters are removed (Unicode's category Cf and its property Default_Ignorable_Code_Point), except where
they belong to the spelling. No condition depends on a character that is itself removed: one pass is enough.
"""

import re
from functools import lru_cache
from typing import NamedTuple

NO_CHANGE, REMOVAL, BLANK, BLANKS, LINE_BREAK = "kept", "removed", "a blank", "four blanks", "a line break"
WINDOWS = "what Windows-1252 has there"
INSTEAD = {REMOVAL: "", BLANK: " ", BLANKS: "    ", LINE_BREAK: "\n"}
UNDEFINED = "\x81\x8d\x8f\x90\x9d"  # in Windows-1252
SOFT_HYPHEN = "\u00ad"
LATE_CHARACTERS = SOFT_HYPHEN + UNDEFINED  # treated after the repair of mojibake, which needs these bytes

# regex classes
_EMOJI = "\u2190-\u21ff\u2300-\u2328\u232b-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_CURSIVE = (  # Arabic, the Indic scripts and their relatives: their letters have several forms
    "\u0600-\u061b\u061d-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af\u1900-\u1cff\ua800-\ua95f\ua980-\uabff"
    "\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f"
)
_UNSPACED = (  # Thai, Lao, Burmese, Khmer, New Tai Lue, Tai Tham
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
)
_CASED = "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u052f\u1e00-\u1fff\u2126\u212a\u212b"  # Latin, Greek, Cyrillic; their marks
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_TAG = "[\U000e0020-\U000e007e]"
_END = "\U000e007f"
_FLAG = "\U0001f3f4"  # a black flag begins those of England and others, in tags: up to six and an end
_ROW = "{}"  # in a condition: the characters of the row

# conditions: after which characters others are kept
_IN_JAMO = "(?<=[\u1100-\u115f])\u1160|\u115f(?=[\u1160-\u11a7])"
_IN_UNSPACED = f"(?<=[{_UNSPACED}]){_ROW}"
_IN_JOINED = f"(?<=[{_CURSIVE}]){_ROW}"
_IN_EMOJI = f"(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}][{_SELECTORS}])){_ROW}(?=[{_EMOJI}])"
_IN_FLAG = "|".join(f"(?<={_FLAG}{_TAG * n})(?:{_TAG}(?={_TAG}*{_END})|{_END})" for n in range(7))


class Row(NamedTuple):
    """Characters that are treated alike."""

    category: str  # Unicode's; one or several
    name: str
    characters: str  # a regex class
    becomes: str
    site: str = ""  # where they belong to the spelling, in words
    where: str = ""  # the same as a regex, in which _ROW stands for the class


_ROWS = [
    Row("Cc, Zl, Zp", "carriage return, U+2028, U+2029", "\r\u2028\u2029", LINE_BREAK),
    Row("Cc", "tab", "\t", BLANKS),
    Row("Zs, So", "all spaces, U+2800", "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800", BLANK),
    Row("Cc", "U+0080 to U+009F that Windows-1252 defines", "\x80\x82-\x8c\x8e\x91-\x9c\x9e\x9f", WINDOWS),
    Row("Cc", "other controls, but the line feed", f"\x00-\x08\x0b\x0c\x0e-\x1f\x7f{UNDEFINED}", BLANK),
    Row("So", "U+FFFC, U+FFFD: something was lost", "\ufffc\ufffd", BLANK),
    Row("Co", "private use", "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd", BLANK),
    Row("Cs, Cn", "surrogates, noncharacters", f"\ud800-\udfff{_NONCHARACTERS}", REMOVAL),
    Row("Cf", "soft hyphen, with a line break after it", SOFT_HYPHEN, REMOVAL),
    Row("Cf", "directional marks, embeddings, isolates", "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069", REMOVAL),
    Row("Cf", "byte-order mark, word joiner, operators", "\u2060-\u2064\u206a-\u206f\ufeff", REMOVAL),
    Row("Cf", "annotations, shorthand, music", "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a", REMOVAL),
    Row("Cn", "those that Unicode reserves as invisible", "\u2065\ufff0-\ufff8", REMOVAL),
    Row("Mn", "the Khmer vowels U+17B4, U+17B5", "\u17b4\u17b5", REMOVAL),
    Row("Lo", "the Hangul fillers U+3164, U+FFA0", "\u3164\uffa0", BLANK),
    Row("Lo", "the Hangul fillers U+115F, U+1160", "\u115f\u1160", REMOVAL, "in a syllable of jamo", _IN_JAMO),
    Row("Cf", "zero-width space", "\u200b", REMOVAL, "in Thai, Lao, Khmer, Burmese", _IN_UNSPACED),
    Row("Cf", "zero-width non-joiner", "\u200c", REMOVAL, "in Arabic, Indic and related scripts", _IN_JOINED),
    Row("Cf", "zero-width joiner", "\u200d", REMOVAL, "there, and between emoji", f"{_IN_JOINED}|{_IN_EMOJI}"),
    Row("Cf, Cn", "tags", "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff", REMOVAL, "in the emoji of flags", _IN_FLAG),
    Row("Mn, Cf", "Mongolian selectors", "\u180b-\u180f", REMOVAL, "in Mongolian", f"(?<=[\u1820-\u18aa]){_ROW}"),
    Row("Mn", "grapheme joiner", "\u034f", REMOVAL, "in Hebrew", f"(?<=[\u0591-\u05f2]){_ROW}"),
]
_NO_BASE = "".join(row.characters for row in _ROWS) + _SELECTORS + _CASED
_SELECTOR_PLACE = "one after a symbol or a letter, but not of Latin, Greek, Cyrillic"
TABLE = (
    *_ROWS,
    Row("Mn", "variation selectors", _SELECTORS, REMOVAL, _SELECTOR_PLACE, f"(?<=[^\n {_NO_BASE}]){_ROW}"),
    Row("L, M, N, P, S", "letters, marks (30 on a letter), digits, punctuation, symbols", "", NO_CHANGE),
    Row("Cf, Cn", "others: signs of Arabic and hieroglyphs, characters not yet assigned", "", NO_CHANGE),
)

_CHANGED = [row for row in TABLE if row.becomes in INSTEAD]
_WHERE = {row: re.compile(row.where.replace(_ROW, f"[{row.characters}]")) for row in TABLE if row.site}
_INVISIBLE = re.compile(f"[{''.join(row.characters for row in _WHERE)}]")
_NOT_LATE = "".join(row.characters for row in _CHANGED if row.characters != SOFT_HYPHEN).replace(UNDEFINED, "")
_EARLY_CHARACTERS = re.compile(f"[{_NOT_LATE}]")


@lru_cache(maxsize=1 << 12)
def row_of(character: str) -> Row:
    """Return the row of a character; of one that is kept, the first such."""
    rows = (row for row in TABLE if row.characters and re.match(f"[{row.characters}]", character))
    return next(rows, TABLE[-1])


def settle(text: str) -> str:
    """Treat each character as its row says, except with those of LATE_CHARACTERS and with what Windows-1252 has."""
    return _EARLY_CHARACTERS.sub(_settled, text)


def _settled(match: re.Match[str]) -> str:
    row = row_of(match[0])
    if row.site and _WHERE[row].match(match.string, match.start()):
        return match[0]
    return INSTEAD[row.becomes]


def visible(text: str) -> str:
    """Return a text without the invisible characters that are kept where they belong to the spelling."""
    return _INVISIBLE.sub("", text)
