"""What formats of response selection share: a context, the candidates to choose from, and no ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from data_prep.collections.format import Format, Labelled, Text, Where, files_by_split
from data_prep.collections.ids import content_id


class CandidateList(NamedTuple):
    """A context and its candidates; labels are 1 for a right one and 0 for the others."""

    turns: Sequence[str]
    candidates: Sequence[str]
    labels: Sequence[float]
    where: Where

    @property
    def query(self) -> str:
        """The id of the context."""
        return content_id("\x1f".join(self.turns))  # ASCII's own separator: the same words cut otherwise are another


class CandidateLists(Format):
    """A format whose files are candidate lists; equal contexts are one query, equal candidates one document."""

    repeats = True
    whole = True

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Take any number of files."""
        self.by_split = files_by_split(inputs)

    @abstractmethod
    def lists(self, file: Path) -> Iterator[CandidateList]:
        """Yield the candidate lists of a file."""

    def files(self) -> list[Path]:
        """All that were named."""
        return [file for files in self.by_split.values() for file in files]

    def corpus(self) -> Iterator[Text]:
        """Every candidate."""
        for item in self._all():
            for candidate in item.candidates:
                yield Text(content_id(candidate), [candidate], item.where)

    def queries(self) -> Iterator[Text]:
        """Every context; its parts are the turns."""
        for item in self._all():
            yield Text(item.query, item.turns, item.where)

    def splits(self) -> list[str]:
        """As the files are named."""
        return list(self.by_split)

    def groups(self, split: str) -> Iterator[Labelled]:
        """The candidate lists of a split."""
        for file in self.by_split[split]:
            for item in self.lists(file):
                yield Labelled(item.query, [content_id(text) for text in item.candidates], item.labels, item.where)

    def _all(self) -> Iterator[CandidateList]:
        for files in self.by_split.values():
            for file in files:
                yield from self.lists(file)
