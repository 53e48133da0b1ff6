"""The one record that every source of text yields."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """A text as an ordered run of segments: sentences, or the utterances of a dialogue."""

    id: str
    segments: tuple[str, ...]
    headings: tuple[int, ...] = ()  # which of the segments are headings: boundaries of their own kind
    context: int = 0  # how many leading segments are only context: new in another document, repeated in this one
