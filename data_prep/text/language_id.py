"""Language identification by py3langid, a naive Bayes classifier of byte n-grams (Lui and Baldwin 2011)."""

from functools import cache
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require

ANY_LANGUAGE = "any"  # in place of a language: keep all languages
THRESHOLD = 20.0  # nats; docs/data.md shows what it keeps and drops
SAMPLE = 4000  # characters of a long text that are examined
WINDOWS = 4  # the number of places that they are taken from


def odds_against(text: str, language: str) -> float:
    """Return the log-odds (nats) of the likeliest other language to this one; negative where this one is likeliest.

    They grow with the length of a text: a word may come from any language. A long text is judged by pieces spread over
    its whole length. For a text without letters, all languages are equally likely: 0.
    """
    if language == ANY_LANGUAGE:
        return float("-inf")
    scores = dict(_identifier().rank(sampled(text)))
    score = scores.pop(language)
    return float(max(scores.values()) - score)


def likeliest(text: str) -> str:
    """Return the code of the likeliest language of a text."""
    return str(_identifier().classify(sampled(text))[0])


def sampled(text: str) -> str:
    """Return a text of at most SAMPLE characters, or else WINDOWS pieces of it at equal distances."""
    if len(text) <= SAMPLE:
        return text
    size = SAMPLE // WINDOWS
    step = (len(text) - size) // (WINDOWS - 1)
    return " ".join(text[start : start + size] for start in range(0, step * WINDOWS, step))


def known(language: str) -> str:
    """Return a language that can be identified, a lower-case ISO 639 code, or ANY_LANGUAGE; else raise InputError."""
    code = language.lower()
    if code == ANY_LANGUAGE:
        return ANY_LANGUAGE
    labels = _identifier().labels
    if code not in labels:
        raise InputError(f"--language {language}: not known; one of {ANY_LANGUAGE}, {', '.join(sorted(labels))}")
    return code


@cache
def _identifier() -> Any:
    require("dumps", "py3langid", feature="--language, or guessing an encoding,")
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)
