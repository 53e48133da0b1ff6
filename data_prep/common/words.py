"""The words of a text, for BM25 and for the marks of pages: of any script, the same however it is encoded.

Words are runs of letters, their marks, digits and underscores: `os.path` is two. One letter or digit is a word, too,
unless an apostrophe joins it to others, as in `it's`; so is an emoji.

Between the letters of some scripts a line may break, because they have no spaces between words (Chinese, Japanese,
Thai, Khmer, ...) or long words of several parts (Korean). There, words are each letter and each pair of neighbours, as
by Lucene's CJKBigramFilter with outputUnigrams: a dictionary is not needed.

Case and form are folded as by Unicode's NFKC_Casefold: full-width letters, ligatures, composed accents, soft hyphens
and joiners make no difference. Nor do the points of Arabic and Hebrew, which most writers leave out.
"""

import re
from itertools import pairwise
from unicodedata import normalize

import regex

STOP_WORDS = frozenset(  # Lucene's, of English
    ["a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no"]
    + ["not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this"]
    + ["to", "was", "will", "with"]
)
_BREAKABLE = "".join(rf"\p{{lb={kind}}}" for kind in ("ID", "CJ", "NS", "H2", "H3", "SA", "AK", "AS"))  # UAX 14
_UNIT = rf"[[\w--\p{{M}}]&&[{_BREAKABLE}]]\p{{M}}*+"  # a letter with its marks
_UNITS = regex.compile(_UNIT, regex.V1)
_START, _END = r"(?<!\w['’])(?!_)", r"(?!['’]\w)"  # around a letter that is a word
_LETTER = rf"[\w--[{_BREAKABLE}]]"
_WORDS = regex.compile(
    rf"(?!\p{{M}})(?:{_LETTER}{{2,}}+|{_START}{_LETTER}{_END})|(?:{_UNIT})++|\p{{Emoji_Presentation}}", regex.V1
)
# U+200B parts words; U+0640 stretches them; U+0307 is what Turkish İ leaves
_OMITTED = regex.compile(r"[\p{DI}--\u200b]|\u0640|[[\p{scx=Arab}\p{scx=Hebr}]&&\p{Mn}]|(?<=i)\u0307", regex.V1)
# Latin, Greek, Cyrillic and punctuation: there, a pattern that is four times as quick finds the same words
_SCRIPTS = re.compile(
    "[\0-¬®-\u02ff\u0370-\u0482\u048a-\u052f\u1e00-\u200b\u2010-\u2029\u202f-\u203e\u20a0-\u20bf\u2100-\u22ff]*"
)
_PLAIN_WORDS = re.compile(rf"\w\w+|{_START}\w{_END}")
_PIECES = regex.compile(rf"({_UNIT}|{_LETTER}++|\p{{Emoji_Presentation}})", regex.V1)


def split_words(text: str) -> list[str]:
    """Return the words of a text, folded, in order."""
    # NFKC makes two letters of a trade mark, which would be joined to the word before
    folded = text.lower() if text.isascii() else normalize("NFKC", text.replace("™", " ")).casefold()
    if folded.isascii() or _SCRIPTS.fullmatch(folded):
        return _PLAIN_WORDS.findall(folded)
    words: list[str] = []
    for word in _WORDS.findall(_OMITTED.sub("", folded)):
        units = [] if word.isascii() else _UNITS.findall(word)
        words += [*units, *map("".join, pairwise(units))] or [word]
    return words


def pieces(text: str) -> list[str]:
    """Cut a text, as it is, into its words and what is between them; where lines may break, into letters."""
    return _PIECES.split(text)
