"""Pairs (query, document) made of documents: a title and its lead, a heading and its section, neighbouring passages."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from deepsiam.data_prep.sources.document import Document, Dropped

MIN_CHARACTERS = 20  # characters of a pair's document
SHORTEST_PARAGRAPH = 40  # characters; a shorter one is a heading without markup, or an item
PASSAGE = 600  # characters, some 100 words: the least of a passage, except the last of a section
LONGEST_PASSAGE = 1500  # characters, some 350 tokens, unless its first paragraph alone has more

_SENTENCES = re.compile(r".*[.!?…。！？][\"'”’»)\]]*", re.DOTALL)

Pairing = Callable[[Document], Iterable[tuple[str, str]]]


def pairs_of(document: Document, pairs: Iterable[tuple[str, str]]) -> Iterator[Document | Dropped]:
    """Yield the pairs made of a document, each a document of two segments, as `ID/1`, `ID/2`, ... of one group.

    Dropped: a pair whose document is short or missing, and a document of which no pair is left.
    """
    unknown, guessed = document.unknown, document.guessed  # counted once
    has_pair = False
    for number, (query, text) in enumerate(pairs, 1):
        if is_short(text):
            yield Dropped("no text or short")
            continue
        group = document.group or document.id
        yield Document(f"{document.id}/{number}", (query, text), group=group, guessed=guessed, unknown=unknown)
        has_pair, unknown, guessed = True, (), ""
    if not has_pair:
        yield Dropped("no pair", unknown)


def is_short(text: str) -> bool:
    """Return whether a text is too short to be the document of a pair."""
    return len(text) < MIN_CHARACTERS


def lead(document: Document) -> str:
    """Return the beginning of the text before the first heading; "" if there is none."""
    _, section = next(_sections(document))
    return _beginning(section)


def titled(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the title with the lead, and `title: heading` with the beginning of each section."""
    for heading, section in _sections(document):
        if document.title and section:
            yield f"{document.title}: {heading}" if heading else document.title, _beginning(section)


def neighbours(document: Document) -> Iterator[tuple[str, str]]:
    """Yield each two neighbouring passages of a section; a passage is in one pair."""
    for _, section in _sections(document):
        passages = _passages(section)
        yield from zip(passages, passages, strict=False)


def _sections(document: Document) -> Iterator[tuple[str, list[str]]]:
    """Yield each heading with the segments up to the next one; "" for those before the first."""
    heading, section = "", list[str]()
    headings = frozenset(document.headings)
    for number, segment in enumerate(document.segments):
        if number in headings:
            yield heading, section
            heading, section = segment, []
        else:
            section.append(segment)
    yield heading, section


def _beginning(section: Iterable[str]) -> str:
    """Return the paragraphs before the first list or heading, as many as fit in LONGEST_PASSAGE, but at least one."""
    text = ""
    for paragraph in takewhile(_is_paragraph, section):
        if text and len(text) + 1 + len(paragraph) > LONGEST_PASSAGE:
            break
        text = f"{text} {paragraph}".lstrip()
    return text


def _is_paragraph(segment: str) -> bool:
    return len(segment) >= SHORTEST_PARAGRAPH and _SENTENCES.fullmatch(segment) is not None


def _passages(paragraphs: Iterable[str]) -> Iterator[str]:
    """Join paragraphs into passages of PASSAGE characters or more; the last may have fewer."""
    passage = ""
    for paragraph in paragraphs:
        passage = f"{passage} {paragraph}" if passage else paragraph
        if len(passage) >= PASSAGE:
            yield passage
            passage = ""
    if passage:
        yield passage
