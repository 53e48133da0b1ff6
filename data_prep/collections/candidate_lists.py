"""The base of formats without ids: a query, or the turns of a dialogue, with its labelled candidates."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from deepsiam.data_prep.collections.format import Format, Labelled, Text, Where, files_by_split, joined
from deepsiam.data_prep.collections.ids import content_id


class CandidateList(NamedTuple):
    """A context and its candidates; labels are 1 for right and 0 for wrong ones, or scores, or a class."""

    turns: Sequence[str]
    candidates: Sequence[str]
    labels: Sequence[float]
    where: Where
    scores: Sequence[float] | None = None  # a teacher's, beside the labels (NaN: none)

    @property
    def query(self) -> str:
        """The id of the context."""
        return content_id("\x1f".join(self.turns))  # ASCII's unit separator: other turns, another id


class LeftOut(NamedTuple):
    """A part of a file that gives no candidate list, and why."""

    why: str  # in the plural: `questions without a positive passage`
    where: Where


class CandidateLists(Format):
    """A format whose files are candidate lists; equal contexts are one query, equal candidates one document.

    Attributes:
        leaves_out: whether `lists` also yields LeftOut items, which are counted for the user.
    """

    repeats = True
    item_groups = True
    leaves_out: ClassVar[bool] = False

    def __init__(self, inputs: Sequence[Path]) -> None:
        self.by_split = files_by_split(inputs)
        self.paths = self._listed()

    @abstractmethod
    def lists(self, file: Path) -> Iterator[CandidateList | LeftOut]:
        """Yield the candidate lists of a file."""

    def of_split(self, split: str) -> Iterator[CandidateList | LeftOut]:
        """Yield the candidate lists of a split."""
        for file in self.by_split[split]:
            yield from self.lists(file)

    def corpus(self) -> Iterator[Text]:
        for item in self._all():
            for candidate in item.candidates:
                yield Text(content_id(candidate), [candidate], item.where)

    def queries(self) -> Iterator[Text]:
        """Yield every context; its parts are the turns."""
        for item in self._all():
            yield Text(item.query, item.turns, item.where)

    def groups(self, split: str) -> Iterator[Labelled]:
        for item in self.of_split(split):
            if isinstance(item, CandidateList):
                ids = [content_id(text) for text in item.candidates]
                yield Labelled(item.query, ids, item.labels, item.where, item.scores)

    def remarks(self) -> list[str]:
        """Report which files each split joins; what it leaves out: the reason, the number, where the first one is."""
        left_out = (remark for split in self.by_split if self.leaves_out for remark in self._left_out(split))
        return [*joined(self.by_split), *left_out]

    def _left_out(self, split: str) -> Iterator[str]:
        first_places: dict[str, Where] = {}
        number: Counter[str] = Counter()
        for item in self.of_split(split):
            if isinstance(item, LeftOut):
                first_places.setdefault(item.why, item.where)
                number[item.why] += 1
        for why, where in first_places.items():
            yield f"split {split}: left out {number[why]:,} {why} (the first: {where})"

    def _listed(self) -> list[Path]:
        return list(dict.fromkeys(file for files in self.by_split.values() for file in files))

    def _all(self) -> Iterator[CandidateList]:
        for file in self._listed():
            yield from (item for item in self.lists(file) if isinstance(item, CandidateList))
