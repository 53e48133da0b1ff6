"""The best checkpoint interval, against the minimum found by a search."""

import math

import numpy as np
import pytest

from deepsiam.trainer.cluster.planning.failures import daly_interval, young_interval
from tests.trainer.cluster.planning.daly import expected_seconds

DAY = 86400.0


@pytest.mark.parametrize("save", [5.0, 60.0, 600.0])
@pytest.mark.parametrize("mtbf", [0.1 * DAY, DAY, 30 * DAY])
def test_daly_s_interval_is_where_the_run_is_shortest(save: float, mtbf: float) -> None:
    intervals = np.geomspace(10, 1e6, 200_001)
    lengths = [expected_seconds(DAY, interval, save, 300, mtbf) for interval in intervals]
    best = intervals[int(np.argmin(lengths))]
    interval = daly_interval(save, mtbf)
    assert interval == pytest.approx(best, rel=0.01)
    assert expected_seconds(DAY, interval, save, 300, mtbf) == pytest.approx(min(lengths), rel=1e-4)


def test_young_s_is_the_first_term() -> None:
    assert young_interval(2.0, 100.0) == 20.0
    assert daly_interval(1.0, 1e9) == pytest.approx(young_interval(1.0, 1e9), rel=1e-3)


def test_where_saving_takes_longer_than_failures_leave_the_interval_is_the_mtbf() -> None:
    assert daly_interval(200.0, 100.0) == 100.0


def test_without_failures_only_saves_are_added() -> None:
    assert expected_seconds(1000.0, 100.0, 10.0, 300.0, 1e12) == pytest.approx(1100, rel=1e-4)


def test_a_run_that_never_ends_is_infinite() -> None:
    assert expected_seconds(DAY, DAY, 10.0, 10.0, 60.0) == math.inf
