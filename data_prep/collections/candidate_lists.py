"""What formats without ids share: a query, or the turns of a dialogue, and its labelled candidates."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from data_prep.collections.format import Format, Labelled, Text, Where, files_by_split
from data_prep.collections.ids import content_id


class CandidateList(NamedTuple):
    """A context and its candidates; labels are 1 for a right one and 0 for the others, a teacher's scores, a class."""

    turns: Sequence[str]
    candidates: Sequence[str]
    labels: Sequence[float]
    where: Where

    @property
    def query(self) -> str:
        """The id of the context."""
        return content_id("\x1f".join(self.turns))  # ASCII's own separator: the same words cut otherwise are another


class LeftOut(NamedTuple):
    """What a file has in place of a candidate list."""

    why: str  # in the plural: `questions without a positive passage`
    where: Where


class CandidateLists(Format):
    """A format whose files are candidate lists; equal contexts are one query, equal candidates one document.

    Attributes:
        leaves_out: whether `lists` yields LeftOut too; they are counted for the user.
    """

    repeats = True
    whole = True
    leaves_out: ClassVar[bool] = False

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Take any number of files."""
        self.by_split = files_by_split(inputs)

    @abstractmethod
    def lists(self, file: Path) -> Iterator[CandidateList | LeftOut]:
        """Yield the candidate lists of a file."""

    def of_split(self, split: str) -> Iterator[CandidateList | LeftOut]:
        """Yield the candidate lists of a split."""
        for file in self.by_split[split]:
            yield from self.lists(file)

    def files(self) -> list[Path]:
        """All that were named."""
        return self._listed()

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
        for item in self.of_split(split):
            if isinstance(item, CandidateList):
                yield Labelled(item.query, [content_id(text) for text in item.candidates], item.labels, item.where)

    def remarks(self) -> list[str]:
        """How many of what each split leaves out, and where the first stands."""
        return [remark for split in self.by_split if self.leaves_out for remark in self._left_out(split)]

    def _left_out(self, split: str) -> Iterator[str]:
        first: dict[str, Where] = {}
        number: Counter[str] = Counter()
        for item in self.of_split(split):
            if isinstance(item, LeftOut):
                first.setdefault(item.why, item.where)
                number[item.why] += 1
        for why, where in first.items():
            yield f"split {split}: left out {number[why]:,} {why} (the first: {where})"

    def _listed(self) -> list[Path]:
        return list(dict.fromkeys(file for files in self.by_split.values() for file in files))

    def _all(self) -> Iterator[CandidateList]:
        for file in self._listed():
            yield from (item for item in self.lists(file) if isinstance(item, CandidateList))
