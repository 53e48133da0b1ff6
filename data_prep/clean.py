"""What every source of text shares: normal form, the prose and English filters, sentences, exact duplicates."""

import html
import re
import unicodedata

import blingfire


def word_set(text: str) -> frozenset[str]:
    """The blank-separated words of a constant."""
    return frozenset(text.split())


# The commonest English words that carry no topic. A third or more of running English is made of them, and
# hardly any of another language, of code, or of a table is; so counting them is a language filter and a
# prose filter at once, with no model to download.
FUNCTION_WORDS = word_set(
    """a about after all also an and any are as at be because been before being between both but by can could
    did do does each either for from had has have he her his how i if in into is it its may might more most
    must no nor not of on one only or other our over she should since so some such than that the their them
    then there these they this those through to under until up used was we were what when where whether which
    while who will with within without would you your"""
)
MIN_FUNCTION_SHARE = 0.1  # of the words of a document; English documentation has 0.2 to 0.5
MIN_ASCII_SHARE = 0.9  # of the letters of a text that reads as English
MIN_WORD_SHARE = 0.6  # of the blank-separated pieces of a paragraph that must be plain words
MAX_SYMBOL_SHARE = 0.08  # of the characters of a paragraph that may be symbols of code or mathematics

_CONTROL = re.compile(r"[^\S\n]|[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060\ufeff\ufffd]")
_C1 = re.compile(r"[\x80-\x9f]")  # controls that no text has: bytes of Windows-1252 that were taken for Latin-1
_WINDOWS = {byte: character for byte in range(0x80, 0xA0) if (character := bytes([byte]).decode("cp1252", "ignore"))}
MOST_MARKS = 30  # on one letter, as in Unicode's stream-safe text; NFC takes quadratic time over longer runs
_MARKS = re.compile(rf"[^\w\x00-\u02ff]{{{MOST_MARKS + 1},}}")
_LONG_REFERENCE = re.compile(r"&#[0-9]{8,};?")  # no character; html.unescape raises ValueError from 4,300 digits
_ASCII_LETTERS = re.compile(r"[A-Za-z]+")
_BEYOND_ASCII = re.compile(r"[^\W\x00-\x7f]+")
_WORD = re.compile(r"[\"'(\[]*(?:[A-Za-z]{2,}|[aAI])(?:['’/-][A-Za-z]+)*[\])\"'.,;:!?]*")
_SYMBOL = re.compile(r"[=(){}\[\]<>_/\\|@#$%^&*~+`]")
_NO_SENTENCE_END = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|etc|cf|vs|resp|approx|Eqs?|Figs?|Refs?|Secs?|No|pp?)\.$")


def unescape(text: str) -> str:
    """`&amp;`, `&#38;` and all other references of HTML as the characters they stand for, from any input."""
    return html.unescape(_LONG_REFERENCE.sub(" ", text))


def normalise(text: str) -> str:
    """Unicode NFC; control and invisible characters become blanks, line breaks stay; MOST_MARKS marks a letter.

    Of the controls U+0080 to U+009F, those that are characters in Windows-1252 become these.
    """
    return _C1.sub(" ", legible(text))


def legible(text: str) -> str:
    """As `normalise`, but for the five bytes that Windows-1252 lacks: mojibake cannot be undone without them."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    text = text.encode("utf-8", "ignore").decode()  # lone surrogates, which no file could hold
    if _C1.search(text):
        text = text.translate(_WINDOWS)
    text = _MARKS.sub(_fewer_marks, _CONTROL.sub(" ", text))
    return _MARKS.sub(_fewer_marks, unicodedata.normalize("NFC", text))  # which takes some marks apart


def _fewer_marks(run: re.Match[str]) -> str:
    marks = 0
    kept = []
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph reads as sentences rather than code, a formula, a list of names or a heading."""
    pieces = paragraph.split()
    words = sum(_WORD.fullmatch(piece) is not None for piece in pieces)
    if len(pieces) < 3 or words < MIN_WORD_SHARE * len(pieces):
        return False
    if len(_SYMBOL.findall(paragraph)) > MAX_SYMBOL_SHARE * len(paragraph):
        return False
    return function_words(paragraph) > 0 or (words == len(pieces) and paragraph.endswith("."))


def function_words(text: str) -> int:
    """How many of the words of a text are English function words."""
    return sum(map(FUNCTION_WORDS.__contains__, re.findall(r"[a-z]+", text.lower())))


def is_english(text: str) -> bool:
    """Whether enough of a text's words are English function words."""
    words = re.findall(r"[^\W\d_]+", text)
    return bool(words) and function_words(text) >= MIN_FUNCTION_SHARE * len(words)


def reads_as_english(text: str) -> bool:
    """`is_english`, and its letters are too, which other languages with a few English words in them lack."""
    return mostly_ascii(text) and is_english(text)


def mostly_ascii(text: str) -> bool:
    """Whether at least MIN_ASCII_SHARE of the letters of a text are ASCII; so they are where there are none."""
    if text.isascii():
        return True
    plain = sum(map(len, _ASCII_LETTERS.findall(text)))
    others = sum(map(str.isalpha, "".join(_BEYOND_ASCII.findall(text))))
    return plain >= MIN_ASCII_SHARE * (plain + others)


def sentences(paragraph: str) -> list[str]:
    """Splits a paragraph of one line with blingfire, and joins again what it split after `e.g.` and the like."""
    result: list[list[str]] = []  # of each sentence its pieces: a string that grows by each takes quadratic time
    for piece in blingfire.text_to_sentences(paragraph).split("\n"):
        if result and _NO_SENTENCE_END.search(result[-1][-1]):
            result[-1].append(piece)
        elif piece.strip():
            result.append([piece.strip()])
    return [" ".join(pieces) for pieces in result]


def fold(text: str) -> str:
    """What two texts share that differ only in case and spacing."""
    return " ".join(text.casefold().split())
