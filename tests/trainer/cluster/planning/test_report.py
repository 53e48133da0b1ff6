"""The text of the plan."""

from dataclasses import replace

import pytest

from deepsiam.trainer.cluster.planning import report
from deepsiam.trainer.cluster.planning.training import Limit
from tests.trainer.cluster.planning.test_training import MACHINES, planned


def test_columns_are_as_wide_as_their_longest_cell() -> None:
    assert report.table(["a", "long"], [["1,000", "x"], ["2", "y"]]) == ["    a  long", "1,000     x", "    2     y"]


def test_where_more_hosts_stop_paying() -> None:
    limits = [
        Limit(256, 1, 4, "communication"),
        Limit(256, 2, 0, "batch.size"),
        Limit(1024, 1, 8, ""),
        Limit(1024, 2, 8, ""),
    ]
    title, heads, first, second = report.pays(limits)
    assert "at least 50% of what one alone does" in title
    assert heads.split() == ["batch.size", "ZeRO-1", "ZeRO-2"]
    assert first.split("  ")[-2:] == ["4 (communication)", "not even 1 (batch.size)"]
    assert second.split() == ["1,024", "8", "or", "more", "8", "or", "more"]


def test_changes_name_the_overrides_and_another_experiment() -> None:
    row = planned(MACHINES, 1)
    assert list(report.changes(row)) == []
    changed = replace(row, ranks=1024, changes=("batch.size=1024", "steps=5"), same_experiment=False)
    (line,) = report.changes(changed)
    assert line == ("1,024 ranks cannot share the recipe: planned with batch.size=1024 steps=5 (another experiment)")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0012, "1.2 ms"), (1.4, "1,400 ms"), (2.0, "2 s"), (100.0, "1.67 min"), (86400.0, "24 h")],
)
def test_times_have_a_unit_that_suits_them(seconds: float, shown: str) -> None:
    row = replace(planned(MACHINES, 1), step_seconds=seconds)
    assert report.COLUMNS["step"](row) == shown
