"""Whether a text among code is English, and whether a paragraph is prose."""

import re


def word_set(text: str) -> frozenset[str]:
    """Return the words of a constant, separated by blanks."""
    return frozenset(text.split())


# The commonest English words without a topic. They make up a third or more of running English, and hardly any of
# another language, of code or of a table. So counting them filters both by language and for prose, without a model to
# download.
FUNCTION_WORDS = word_set(
    """a about after all also an and any are as at be because been before being between both but by can could
    did do does each either for from had has have he her his how i if in into is it its may might more most
    must no nor not of on one only or other our over she should since so some such than that the their them
    then there these they this those through to under until up used was we were what when where whether which
    while who will with within without would you your"""
)
MIN_FUNCTION_SHARE = 0.1  # of a document's words; English documentation has 0.2 to 0.5
MIN_WORD_SHARE = 0.6  # of a paragraph's blank-separated pieces: those that must be plain words
MAX_SYMBOL_SHARE = 0.08  # of a paragraph's characters: those that may be symbols of code or mathematics

_WORD = re.compile(r"[\"'(\[]*(?:[A-Za-z]{2,}|[aAI])(?:['’/-][A-Za-z]+)*[\])\"'.,;:!?]*")
_SYMBOL = re.compile(r"[=(){}\[\]<>_/\\|@#$%^&*~+`]")


def is_prose(paragraph: str) -> bool:
    """Return whether a paragraph reads as sentences rather than code, a formula, a list of names or a heading."""
    pieces = paragraph.split()
    words = sum(_WORD.fullmatch(piece) is not None for piece in pieces)
    if len(pieces) < 3 or words < MIN_WORD_SHARE * len(pieces):
        return False
    if len(_SYMBOL.findall(paragraph)) > MAX_SYMBOL_SHARE * len(paragraph):
        return False
    return function_words(paragraph) > 0 or (words == len(pieces) and paragraph.endswith("."))


def function_words(text: str) -> int:
    """Return the number of English function words in a text."""
    return sum(map(FUNCTION_WORDS.__contains__, re.findall(r"[a-z]+", text.lower())))


def is_english(text: str) -> bool:
    """Return whether at least MIN_FUNCTION_SHARE of a text's words are English function words."""
    words = re.findall(r"[^\W\d_]+", text)
    return bool(words) and function_words(text) >= MIN_FUNCTION_SHARE * len(words)
