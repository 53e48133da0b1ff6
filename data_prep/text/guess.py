"""Guess the encoding of text that is not UTF-8 by how likely each makes the text, in bits.

An encoding is considered with the alphabets of its languages, and only where py3langid finds one of these in the
decoded text, or it is the expected one: so `naïve` in English is not read as the Czech letters of `naďve`.
"""

import codecs
import unicodedata
from collections.abc import Iterator
from functools import cache
from math import log2

from deepsiam.data_prep.text import language_id
from deepsiam.data_prep.text.alphabets import ALPHABETS, USUAL, WESTERN, Alphabet

SAMPLE = 1 << 12  # bytes of words that are weighed
BEGINNING = 1 << 16  # bytes whose language is identified
MARGIN = 8.0  # bits, and the share of all, by which another encoding must be likelier than the preferred one
MARGIN_SHARE = 0.01
MAX_BITS = 9.0  # bits for each byte that is not ASCII; text takes 2 to 6
RARE = 0.001  # of the bytes: so few may be anything, and are read as USUAL
MIXED = "utf_8 and cp1252"  # UTF-8 in which some lines or characters are cp1252

_MARKS = dict.fromkeys("“”‘’—–…", 4.0) | dict.fromkeys("«»„‚№、。「」", 6.0)
_SIGNS = dict.fromkeys("£©°§½¼¾®™€•´¡¿", 7.0) | {"\u00a0": 3.0}
_UNUSUAL, _ODD, _FOREIGN, _DAMAGED = 9.5, 13.0, 14.0, 20.0  # a letter, a symbol, another script's letter, no character
_CAPITAL, _OUT_OF_PLACE, _IN_WORD = 2.0, 6.0, 10.0  # more
_JOINING = frozenset("’‘—–…“”\u00ad")  # symbols that may stand between letters
_LATIN_ENDS, _CJK_BEGINS = "\u024f", "\u2e80"
_HIGH = bytes(range(0x80, 0x100))
_NO_TEXT = frozenset(("Cc", "Cn", "Co", "Cs"))


def _as_cp1252(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error("cp1252", _as_cp1252)


def decoded(content: bytes, encoding: str) -> str:
    """Decode by an encoding that `likeliest` returned; bytes that are not in it become U+FFFD."""
    if encoding == MIXED:
        return content.decode("utf-8", "cp1252")
    return content.decode(encoding, "replace")


def likeliest(content: bytes, language: str = language_id.ANY_LANGUAGE) -> str:
    """Return the likeliest encoding of bytes that are not UTF-8; "" if none makes likely text of them.

    Of nearly equal ones it is that of the expected language, or else cp1252.
    """
    sample = _sample(content)
    bits: dict[str, float] = {}
    preferred = USUAL
    for encoding, alphabet in _considered(content, language):
        cost = _bits(decoded(sample, encoding), alphabet)
        if language in alphabet.languages and (preferred == USUAL or cost < bits[preferred]):
            preferred = encoding
        bits[encoding] = min(cost, bits.get(encoding, cost))
    choice = min(bits, key=lambda encoding: bits[encoding])  # the first of equals
    if bits[preferred] - bits[choice] <= max(MARGIN, MARGIN_SHARE * bits[preferred]):
        choice = preferred
    is_likely = bits[choice] <= MAX_BITS * _high(sample)
    return choice if is_likely else USUAL if _high(content) <= RARE * len(content) else ""


def _high(content: bytes) -> int:
    return len(content) - len(content.translate(None, _HIGH))


def _sample(content: bytes) -> bytes:
    """Return words that are not ASCII, from all over the text."""
    words = [word for word in content.split() if not word.isascii()]
    step = sum(map(len, words)) // SAMPLE + 1
    return b" ".join(words[::step])[: 2 * SAMPLE]


def _considered(content: bytes, language: str) -> Iterator[tuple[str, Alphabet]]:
    """Yield encodings, each with an alphabet of the language that the text has in it."""
    unicode = ("utf_8", MIXED)
    yield from ((encoding, WESTERN) for encoding in (*WESTERN.encodings, *unicode))
    encodings = dict.fromkeys(encoding for alphabet in ALPHABETS for encoding in alphabet.encodings)
    for encoding in (*encodings, *unicode):
        languages = {language, language_id.likeliest(decoded(content[:BEGINNING], encoding))}
        for alphabet in ALPHABETS:
            latin = alphabet.letters[0] < _LATIN_ENDS
            is_possible = not latin or languages.intersection(alphabet.languages)
            if is_possible and encoding in (*alphabet.encodings, *unicode):
                yield encoding, alphabet


class _Costs(dict[str, float]):
    """The bits of each character that is not ASCII, in one alphabet, wherever it stands."""

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(_MARKS | _SIGNS)
        for rank, letter in enumerate(alphabet.letters, 2):
            self[letter] = 2 + log2(rank)
        self.common = alphabet.common
        self.script = _script(alphabet.letters[0])

    def __missing__(self, character: str) -> float:
        small = character.lower()
        if small != character and small in self:
            cost = self[small] + _CAPITAL
        elif character == "\ufffd" or unicodedata.category(character) in _NO_TEXT:
            cost = _DAMAGED
        elif not character.isalpha():
            cost = _ODD
        else:
            cost = _UNUSUAL if self._is_usual(character) else _FOREIGN
        self[character] = cost
        return cost

    def _is_usual(self, letter: str) -> bool:
        if self.common is None:
            return _script(letter) == self.script
        codec, low, high = self.common
        return low <= (letter.encode(codec, "ignore") or b"\0")[0] < high


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


_costs = cache(_Costs)


def _bits(text: str, alphabet: Alphabet) -> float:
    """Return the bits of a text's characters that are not ASCII."""
    costs = _costs(alphabet)
    total = 0.0
    left_char = " "
    for character, right_char in zip(text, f"{text[1:]} ", strict=True):
        if character > "\x7f":
            total += costs[character] + _out_of_place(left_char, character, right_char)
        elif character < " ":
            total += _DAMAGED
        left_char = character
    return total


def _out_of_place(left_char: str, character: str, right_char: str) -> float:
    """Return the bits that a character takes more for standing between these two."""
    if not character.isalpha():
        return _IN_WORD if left_char.isalpha() and right_char.isalpha() and character not in _JOINING else 0.0
    if _LATIN_ENDS < character < _CJK_BEGINS:  # Greek to Thai: in words of their own, of more than one letter
        is_alone = not (left_char.isalpha() or right_char.isalpha())
        misplaced = is_alone or _is_latin(left_char) or _is_latin(right_char)
    else:
        misplaced = False
    cased = character.islower() or character.isupper()
    if cased and ((character.isupper() and left_char.islower()) or left_char.isdigit() or right_char.isdigit()):
        misplaced = True
    return _OUT_OF_PLACE if misplaced else 0.0


def _is_latin(character: str) -> bool:
    return character.isascii() and character.isalpha()
