"""The stages that a document passes after its source has read it, one document at a time, in the order of `build`."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.prepare import ngrams
from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.text import language_id, scrub, sentences
from deepsiam.data_prep.text.normalize import fold, one_line

# Bounds of --quality: rules of Gopher (Rae et al. 2021, appendix A.1.1; the last: table A1, duplicate lines), similar
# to those of C4 (Raffel et al. 2020, section 2.2). Their other rules are for web pages, or for English.
QUALITY: dict[str, Any] = {
    "word_length": [3, 10],  # characters of a word on average, at least and at most
    "max_symbols_a_word": 0.1,  # of hashes, and of ellipses
    "min_lettered_words": 0.8,  # the share of words that have a letter
    "max_repeated_segments": 0.3,  # the share that repeats an earlier segment word for word
}

LONGEST_PAIR = 1 << 18  # characters: a longer one might be cut in two

_ELLIPSIS = re.compile(r"\.\.\.|…")
_LETTERED_WORD = re.compile(r"[^\W\d_]\S*")  # from the first letter of a word to its end


@dataclass(frozen=True)
class StageOptions:
    """Which stages to apply, and their settings."""

    repair: bool = False  # undo mojibake, text that was decoded by the wrong code page (needs ftfy)
    scrub: bool = False  # replace e-mail addresses, phone numbers and IP addresses (needs phonenumbers)
    sentences: bool = True  # split paragraphs into sentences
    min_words: int = 0  # drop documents of fewer words
    max_words: int | None = None  # drop documents of more words; None: no bound
    language: str = language_id.ANY_LANGUAGE  # the language of the documents to keep, an ISO 639 code, or any
    language_threshold: float = language_id.THRESHOLD  # log-odds (nats) from which a document counts as not in it
    quality: bool = False  # drop documents that do not read as text
    decontaminate: tuple[str, ...] = ()  # folders of collections: drop documents that share a run of words with one
    ngram: int = 13  # the length of such a run, in words

    def __post_init__(self) -> None:
        """Raise InputError for bounds that no document could meet."""
        if self.max_words is not None and self.max_words < max(self.min_words, 1):
            raise InputError(f"--max-words {self.max_words}: is below --min-words {max(self.min_words, 1)}")
        if self.ngram < 1:
            raise InputError(f"ngram={self.ngram} is below 1")


@dataclass(frozen=True)
class Stage:
    """A step that returns a document, changed or not, or drops it; the parameters are JSON, for the manifest."""

    name: str
    parameters: dict[str, Any]
    apply: Callable[[Document], Document | Dropped]  # picklable


def build(options: StageOptions, paragraphs: bool, evaluation: np.ndarray | None, pairs: bool = False) -> list[Stage]:
    """Return the chosen stages, in the order in which each document passes them.

    `paragraphs`: the source's segments are paragraphs, to be split; `evaluation`: the `ngrams.collection_ngrams` of
    `decontaminate`; `pairs`: each document is a pair.
    """
    stages = []
    if options.repair:
        stages.append(Stage("repair", {"ftfy": _ftfy().__version__}, _repair))
    stages.append(Stage("normalise", {}, _normalise))
    if options.scrub:
        stages.append(Stage("scrub", {"phonenumbers": scrub.phonenumbers().__version__}, _scrub))
    if options.sentences and paragraphs:
        stages.append(Stage("sentences", {}, _sentences))
    if pairs:
        stages.append(Stage("pairs", {"characters": LONGEST_PAIR}, _pair))
    if options.min_words > 0 or options.max_words is not None:
        low, high = options.min_words, options.max_words
        stages.append(Stage("length", {"min_words": low, "max_words": high}, partial(_length, low, high)))
    if options.language != language_id.ANY_LANGUAGE:
        language, threshold = options.language, options.language_threshold
        stages.append(
            Stage("language", {"language": language, "threshold": threshold}, partial(_language, language, threshold))
        )
    if options.quality:
        stages.append(Stage("quality", QUALITY, _quality))
    if options.decontaminate:
        if evaluation is None:
            raise ValueError("decontaminate without the n-grams of the evaluation collections")
        parameters = {"collections": list(options.decontaminate), "ngram": options.ngram, "ngrams": len(evaluation)}
        stages.append(Stage("decontaminate", parameters, partial(_decontaminate, evaluation, options.ngram)))
    return stages


def _ftfy() -> Any:
    require("dumps", "ftfy", feature="--repair")
    import ftfy

    return ftfy


def _repair(document: Document) -> Document | Dropped:
    fix = _ftfy().fix_encoding  # without ftfy's other changes, such as to quotes
    return _resegmented(document, lambda segment, _: [fix(segment)])


def _normalise(document: Document) -> Document | Dropped:
    return _resegmented(document, lambda segment, _: list(filter(None, [one_line(segment)])))


def _scrub(document: Document) -> Document | Dropped:
    return _resegmented(document, lambda segment, _: [scrub.scrub(segment)])


def _sentences(document: Document) -> Document | Dropped:
    return _resegmented(document, lambda segment, heading: [segment] if heading else sentences.sentences(segment))


def _resegmented(document: Document, split: Callable[[str, bool], list[str]]) -> Document | Dropped:
    """Replace each segment by `split(segment, is heading)`; drop a document with only context left as `empty`."""
    segments: list[str] = []
    headings: list[int] = []
    context = 0
    heading_numbers = frozenset(document.headings)
    for index, segment in enumerate(document.segments):
        start = len(segments)
        segments += split(segment, index in heading_numbers)
        if index in heading_numbers:
            headings += range(start, len(segments))
        if index < document.context:
            context = len(segments)
    if context == len(segments):
        return Dropped("empty")
    return replace(document, segments=tuple(segments), headings=tuple(headings), context=context)


def _pair(document: Document) -> Document | Dropped:
    if len(document.segments) != 2:
        return Dropped("empty query or document")  # once it is in normal form
    query, text = document.segments
    if fold(query) == fold(text):
        return Dropped("query is document")
    return Dropped("too long") if len(query) + len(text) > LONGEST_PAIR else document


def _length(min_words: int, max_words: int | None, document: Document) -> Document | Dropped:
    words = sum(len(segment.split()) for segment in document.segments)
    if words < min_words:
        return Dropped("too_short")
    return Dropped("too_long") if max_words is not None and words > max_words else document


def _language(language: str, threshold: float, document: Document) -> Document | Dropped:
    against = language_id.odds_against(_text(document), language)
    return document if against < threshold else Dropped("other_language")


def _quality(document: Document) -> Document | Dropped:
    text = _text(document)
    words = text.split()
    min_length, max_length = QUALITY["word_length"]
    is_good = (
        min_length * len(words) <= sum(map(len, words)) <= max_length * len(words)
        and max(text.count("#"), len(_ELLIPSIS.findall(text))) <= QUALITY["max_symbols_a_word"] * len(words)
        and len(_LETTERED_WORD.findall(text)) >= QUALITY["min_lettered_words"] * len(words)
        and len(set(document.segments)) >= (1 - QUALITY["max_repeated_segments"]) * len(document.segments)
    )
    return document if is_good else Dropped("low_quality")


def _decontaminate(table: np.ndarray, n: int, document: Document) -> Document | Dropped:
    return Dropped("contaminated") if ngrams.shares(ngrams.hashes(_text(document), n), table) else document


def _text(document: Document) -> str:
    return " ".join(document.segments)
