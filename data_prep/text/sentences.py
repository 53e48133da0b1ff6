"""Split paragraphs into sentences."""

import re

import blingfire

from deepsiam.data_prep.text.language import word_set

# Abbreviations: before a name, before a number, and in the middle of a sentence
TITLES = word_set(
    """Adm Brig Bros Capt Cmdr Col Cpl Dr Ft Gen Gov Hon Lieut Lt Maj Messrs Mlle Mme Mons Mr Mrs Ms Mt Pte Pvt Prof Rep
    Rev Sen Sgt St Ste"""
)
NUMBERED = word_set(
    """al Apr Art Aug Bd Ch Chap Cir Co Corp Dec Ed edn Eq Eqs est Feb Fig Figs Inc Jan Jul Jun Ltd Mar No Nos Nov Nr
    Oct Op Pl Pt Ref Refs Sec Sect Secs Sep Sept Ser Supp Tab Ver Vol Vols"""
)
WITHIN = word_set("approx ca cf e.g eg i.e ie pp resp v viz vs")

_WORD_START = r"(?:^|[\s(\[\"'“‘—-])"
_BEFORE_NAME = re.compile(rf"{_WORD_START}(?:{'|'.join(TITLES)})\.$")
_BEFORE_NUMBER = re.compile(rf"{_WORD_START}(?i:{'|'.join(NUMBERED)})\.$")
_BEFORE_ANY = re.compile(rf"{_WORD_START}(?i:{'|'.join(map(re.escape, WITHIN))})\.$")
_INITIAL = re.compile(r"[\"'“‘(]?[A-Z]\.")
_SMALL = re.compile(r"[a-z]+\b(?![A-Z])")
# a sentence may begin with a digit, but a year with a full stop or bracket belongs to the reference before it
_START = re.compile(
    r"(?:(?<=[a-z]{2}[.!?])|(?<=[a-z\d][)\]\"'”’][.!?])|(?<=[a-z.!?][.!?][\"'”’)])|(?<=\d{4}\.)) +"
    rf"(?=[\"'“‘]?(?:\d(?!\d{{3}}[.)])|(?:{'|'.join(TITLES)})\. ?[A-Z\d]))"
)


def sentences(paragraph: str) -> list[str]:
    """Split a one-line paragraph with blingfire, and fix its errors at abbreviations, speech and numbers.

    A part is joined to the one before it if it follows an abbreviation (`Mr.`, `No.`, `e.g.`) or the initial of a name,
    or begins with a small letter (`"Get out!" he thundered`). A sentence that begins with a digit or a title is split
    off (`him. Mr. Hale`).
    """
    result: list[list[str]] = []  # the pieces of each sentence: appending to a string would take quadratic time
    for piece in filter(None, map(str.strip, blingfire.text_to_sentences(paragraph).split("\n"))):
        first_part, *other_parts = _parts(piece)
        if result and _belongs(first_part, result[-1][-1], first_of_all=len(result) == 1):
            result[-1].append(first_part)
        else:
            result.append([first_part])
        result += ([part] for part in other_parts)
    return [" ".join(pieces) for pieces in result]


def _belongs(part: str, sentence: str, first_of_all: bool) -> bool:
    """Return whether a part that blingfire splits off belongs to the sentence before it."""
    if _SMALL.match(part) or _BEFORE_NAME.search(sentence) or _BEFORE_ANY.search(sentence):
        return True
    if part[0].isdigit():
        return bool(_BEFORE_NUMBER.search(sentence))
    return first_of_all and bool(_INITIAL.fullmatch(sentence))


def _parts(piece: str) -> list[str]:
    """Split one of blingfire's sentences where another begins with a digit or a title."""
    parts = []
    start = 0
    for gap in _START.finditer(piece):
        end = gap.start()
        ending = piece[max(start, end - 12) : end]  # enough for the longest abbreviation
        if not any(pattern.search(ending) for pattern in (_BEFORE_NAME, _BEFORE_NUMBER, _BEFORE_ANY)):
            parts.append(piece[start:end])
            start = gap.end()
    return [*parts, piece[start:]]
