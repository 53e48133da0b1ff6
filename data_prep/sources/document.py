"""The items that a source yields: documents, damaged records, and records that it leaves out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """A text as a sequence of segments: sentences, or the utterances of a dialogue.

    Attributes:
        id: unique within the source's input.
        segments: each one line of text, in order.
        headings: the numbers of the segments that are headings.
        context: how many leading segments are only context, repeated from another document of the group.
        group: the id of the thread or book that it is a part of, shared by all parts; "": it is its own group.
        title: the title of the page; "": it has none, or the id contains it.
        guessed: the encoding that was guessed for its text, for the counts; "": none.
        unknown: for each sentence that is left out, for the counts: the markup in it whose text is unknown.
    """

    id: str
    segments: tuple[str, ...]
    headings: tuple[int, ...] = ()
    context: int = 0
    group: str = ""
    title: str = ""
    guessed: str = ""
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bad:
    """A record that cannot be read: its place (`line 12`, `page 17 at byte 3,400`) and what is wrong."""

    file: str
    where: str
    reason: str


@dataclass(frozen=True)
class Dropped:
    """A sound record that the source leaves out, by reason (`redirect`, `deleted`, `bot`): counted, not named.

    `unknown` is that of a document.
    """

    reason: str
    unknown: tuple[str, ...] = ()
