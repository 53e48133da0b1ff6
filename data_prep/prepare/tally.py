"""Count what enters and leaves each stage and what it drops, by reason: in one task and in a whole run."""

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.prepare.rejected import NOT_WANTED, Rejected
from deepsiam.data_prep.sources.document import Document

CHECKED_FROM = 100_000  # records: from here on, too many bad ones end a run early
PRINTED_RECORDS = 5  # bad records that are printed
MOST_NAMES = 1000  # that a manifest lists: of unknown markup, and of documents in each guessed encoding
OTHER_NAMES = "(others)"


class Tally:
    """Counts of one stage: in, out, dropped by reason; the encodings guessed; sentences left out, by unknown markup.

    What is dropped is also listed in `rejected`.
    """

    def __init__(self, name: str, parameters: Mapping[str, Any], rejected: Rejected = NOT_WANTED) -> None:
        self.name, self.parameters, self.rejected = name, parameters, rejected
        self.came = self.went = 0
        self.dropped: Counter[str] = Counter()
        self.guessed: Counter[str] = Counter()
        self.sentences: Counter[str] = Counter()
        self.guessed_for: dict[str, list[str]] = {}  # names of documents by encoding: the alphabet's first MOST_NAMES

    def drop(self, reason: str, where: str = "", document: Document | None = None) -> None:
        """Count a dropped record, by its place in the input, or a document."""
        self.dropped[reason.replace(" ", "_")] += 1
        self.rejected.add(self.name, reason, where, document)

    def guess(self, encoding: str, *names: str, number: int = 1) -> None:
        """Count documents whose encoding was guessed, and keep their names."""
        self.guessed[encoding] += number
        listed = self.guessed_for.setdefault(encoding, [])
        for name in names:  # whichever come first, so that the order of the tasks does not matter
            at = bisect_left(listed, name)
            if listed[at : at + 1] != [name]:
                listed.insert(at, name)
                del listed[MOST_NAMES:]

    def record(self) -> dict[str, Any]:
        """Return the counts in the form of a manifest."""
        counts = {"name": self.name, "parameters": dict(self.parameters), "in": self.came, "out": self.went}
        optional = {
            name: dict(sorted(counted.items()))
            for name in ("guessed", "guessed_for", "sentences")
            if (counted := getattr(self, name))
        }
        return {**counts, "dropped": dict(sorted(self.dropped.items())), **optional}


def add(stages: Iterable[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Sum the records of several tasks, stage by stage, in the order of the stages."""
    totals: dict[str, Tally] = {}
    for records in stages:
        for record in records:
            total = totals.setdefault(record["name"], Tally(record["name"], record["parameters"]))
            total.came += record["in"]
            total.went += record["out"]
            total.dropped.update(record["dropped"])
            for encoding, number in record.get("guessed", {}).items():
                total.guess(encoding, *record.get("guessed_for", {}).get(encoding, ()), number=number)
            total.sentences.update(record.get("sentences", {}))
    return [total.record() for total in totals.values()]


def shortened(stages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the records for a manifest: of much unknown markup, only the most frequent is named."""
    return [
        {**record, "sentences": _commonest(record["sentences"])} if "sentences" in record else dict(record)
        for record in stages
    ]


def _commonest(counts: Mapping[str, int]) -> dict[str, int]:
    ordered = sorted(counts.items(), key=lambda item: (item[0] == OTHER_NAMES, -item[1], item[0]))
    other_number = sum(number for _, number in ordered[MOST_NAMES:])
    return dict(sorted(ordered[:MOST_NAMES])) | ({OTHER_NAMES: other_number} if other_number else {})


def dropped(stages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many records were dropped for each reason, by any stage."""
    reasons: Counter[str] = Counter()
    for record in stages:
        reasons.update(record["dropped"])
    return dict(sorted(reasons.items()))


class Totals:
    """Counts of a run so far: its stages and its bad records."""

    def __init__(self, max_bad: float) -> None:
        """Tolerate bad records up to the share `max_bad` of all."""
        self.max_bad = max_bad
        self.read = self.bad = 0
        self.named: list[str] = []
        self.stages: list[dict[str, Any]] = []

    def add(self, about: Mapping[str, Any]) -> None:
        """Add a finished task; print the first bad records to stderr; raise InputError if there are too many."""
        self.stages = add([self.stages, about["stages"]])
        self.bad += about["bad"]
        self.read = self.stages[0]["in"]
        for line in about["named"][: PRINTED_RECORDS - len(self.named)]:
            self.named.append(line)
            print(f"bad record: {printable(line)}", file=sys.stderr, flush=True)
        if self.read >= CHECKED_FROM:
            self.check()

    @property
    def nothing_is_sound(self) -> bool:
        """Whether all records that were read are bad."""
        return 0 < self.read == self.bad

    def check(self) -> None:
        """Raise InputError where too many records are bad."""
        if self.bad > self.max_bad * self.read:
            note = "" if self.nothing_is_sound else "; finished work is kept"
            raise InputError(
                f"{self.bad:,} of {self.read:,} records are bad, more than --max-bad {self.max_bad:g}, as "
                f"{'; '.join(self.named[:2])}: correct the input, leave it out, or allow more{note}"
            )

    def note(self) -> str:
        """Return, as text, the most frequent reasons for dropping so far, with their counts."""
        commonest = Counter(dropped(self.stages)).most_common(3)
        return ", ".join(f"{number:,} {reason}" for reason, number in commonest)
