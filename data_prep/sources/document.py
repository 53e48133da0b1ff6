"""The items that a source yields: documents, damaged records, and records that it leaves out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """A text as a sequence of segments, each one line: sentences, or the utterances of a dialogue."""

    id: str  # unique within the source's input
    segments: tuple[str, ...]
    headings: tuple[int, ...] = ()  # the numbers of the segments that are headings
    context: int = 0  # how many leading segments are only context, repeated from another document of the group
    group: str = ""  # the id of the thread or book that it is a part of, shared by all parts; "": its own group
    title: str = ""  # of the page; "": it has none, or the id contains it
    guessed: str = ""  # the encoding that was guessed for its text, for the counts; "": none
    unknown: tuple[str, ...] = ()  # for each sentence that is left out, for the counts: its markup of unknown text


@dataclass(frozen=True)
class Bad:
    """A record that cannot be read: its place (`line 12`, `page 17 at byte 3,400`) and what is wrong."""

    file: str
    where: str
    reason: str


class BadRecordError(ValueError):
    """A record cannot be read: the message says what is wrong; the source that reads it adds the place."""


@dataclass(frozen=True)
class Dropped:
    """A sound record that the source leaves out, by reason (`redirect`, `deleted`, `bot`): counted, not named.

    `unknown` is that of a document.
    """

    reason: str
    unknown: tuple[str, ...] = ()
