"""What each stage of a preparation was given, let through and left out, by reason: in one task, and in all of a run."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data_prep.errors import InputError, printable

SURE = 100_000  # records after which too many bad ones end a run before it has read all
NAMED = 5  # bad records that are named


class Tally:
    """What came into a stage, what came out of it, and what did not, by reason."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name, self.parameters = name, parameters
        self.came = self.went = 0
        self.dropped: Counter[str] = Counter()

    def drop(self, reason: str) -> None:
        """Counts one that did not come out."""
        self.dropped[reason.replace(" ", "_")] += 1

    def record(self) -> dict[str, Any]:
        """As it stands in a manifest."""
        kinds = {"name": self.name, "parameters": dict(self.parameters), "in": self.came, "out": self.went}
        return {**kinds, "dropped": dict(sorted(self.dropped.items()))}


def add(stages: Iterable[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The sums of some tasks' records of their stages, in the stages' order."""
    totals: dict[str, Tally] = {}
    for records in stages:
        for record in records:
            total = totals.setdefault(record["name"], Tally(record["name"], record["parameters"]))
            total.came += record["in"]
            total.went += record["out"]
            total.dropped.update(record["dropped"])
    return [total.record() for total in totals.values()]


def dropped(stages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many records were left out for each reason, by any stage."""
    reasons: Counter[str] = Counter()
    for record in stages:
        reasons.update(record["dropped"])
    return dict(sorted(reasons.items()))


class Totals:
    """The stages of a run so far, and its bad records."""

    def __init__(self, max_bad: float) -> None:
        """`max_bad`: the share of all records that may be bad."""
        self.max_bad = max_bad
        self.read = self.bad = 0
        self.named: list[str] = []
        self.stages: list[dict[str, Any]] = []

    def add(self, about: Mapping[str, Any]) -> None:
        """Counts a finished task; names the first bad records on stderr; InputError where they are surely too many."""
        self.stages = add([self.stages, about["stages"]])
        self.bad += about["bad"]
        self.read = self.stages[0]["in"]
        for line in about["named"][: NAMED - len(self.named)]:
            self.named.append(line)
            print(f"bad record: {printable(line)}", file=sys.stderr, flush=True)
        if self.read >= SURE:
            self.check()

    def check(self) -> None:
        """Raises InputError where too many records are bad."""
        if self.bad > self.max_bad * self.read:
            raise InputError(
                f"{self.bad:,} of {self.read:,} records are bad, more than --max-bad {self.max_bad:g}, as "
                f"{'; '.join(self.named[:2])}: mend the input, leave it out, or allow more; what is done is kept"
            )

    def note(self) -> str:
        """How many were left out so far, for the commonest reasons."""
        commonest = Counter(dropped(self.stages)).most_common(3)
        return ", ".join(f"{number:,} {reason}" for reason, number in commonest)
