"""The simulated run: against arithmetic without failures, against Daly's expectation with them."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from deepsiam.trainer.cluster.planning.simulate import Outcome, Scenario, simulate
from tests.trainer.cluster.planning.daly import expected_seconds

NEVER = 1e15


def constant(seconds: float) -> Callable[[int], float]:
    return lambda up: seconds


PLAIN = Scenario(1000, 100, 20.0, 4, constant(2.0), NEVER, 300.0, 0.0)


def run(scenario: Scenario, seed: int = 0) -> Outcome:
    return simulate(scenario, np.random.default_rng(seed))


@pytest.mark.parametrize(("every", "saves"), [(100, 10), (300, 4), (1000, 1), (7, 143)])
def test_without_failures_a_run_is_its_steps_and_saves(every: int, saves: int) -> None:
    outcome = run(replace(PLAIN, every=every))
    assert outcome == Outcome(2000 + 20 * saves, 0, 20.0 * saves, 0.0)


@pytest.mark.parametrize("mtbf", [2_000.0, 20_000.0])
def test_the_mean_is_daly_s(mtbf: float) -> None:
    scenario = replace(PLAIN, steps=10_000, mtbf=mtbf * PLAIN.hosts)
    lengths = [run(scenario, seed).seconds for seed in range(400)]
    expected = expected_seconds(20_000, 200, 20, 300, mtbf)
    assert np.mean(lengths) == pytest.approx(expected, rel=0.02)


def test_no_second_is_counted_twice_or_not_at_all() -> None:
    outcomes = [run(replace(PLAIN, mtbf=4_000.0), seed) for seed in range(20)]
    assert sum(outcome.failures for outcome in outcomes) > 20
    for outcome in outcomes:
        assert outcome.seconds == pytest.approx(1000 * 2.0 + outcome.saving + outcome.lost)
        assert outcome.saving == 20.0 * 10


def test_a_seed_gives_one_run() -> None:
    scenario = replace(PLAIN, mtbf=4_000.0)
    assert run(scenario, 3) == run(scenario, 3)
    assert run(scenario, 3) != run(scenario, 4)


def test_a_run_that_loses_more_than_it_saves_never_ends() -> None:
    outcome = run(replace(PLAIN, mtbf=40.0))  # a failure every 10 s; a checkpoint takes 220 s to reach
    assert not outcome.finished


def test_a_host_that_is_repaired_slowly_slows_the_run_until_the_next_start() -> None:
    asked = []

    def step(up: int) -> float:
        asked.append(up)
        return 2.0 * 4 / up

    scenario = replace(PLAIN, steps=5000, mtbf=20_000.0, step=step)
    fast, slow = ([run(replace(scenario, repair=s), seed).seconds for seed in range(20)] for s in (0.0, 2000.0))
    assert np.mean(fast) < np.mean(slow)
    assert min(asked) < 4


def test_a_run_without_enough_hosts_waits_for_a_repair() -> None:
    scenario = replace(PLAIN, hosts=2, mtbf=1_500.0, step=lambda up: 2.0 if up == 2 else math.inf, repair=50_000.0)
    outcomes = [outcome for seed in range(20) if (outcome := run(scenario, seed)).finished]
    assert any(outcome.failures for outcome in outcomes)
    assert all(outcome.lost >= 50_000 * outcome.failures for outcome in outcomes)


class Scripted:
    """A random generator with given times between failures."""

    def __init__(self, *times: float) -> None:
        self.times = [*times, NEVER]

    def exponential(self, mean: float) -> float:
        return self.times.pop(0)


def test_every_event_by_hand() -> None:
    scenario = replace(PLAIN, mtbf=1.0, step=lambda up: 8.0 / up, repair=1000.0)
    outcome = simulate(scenario, Scripted(500, 2000))  # type: ignore[arg-type]
    # 4 hosts, segments of 220 s: two are saved before 500 s, 60 s are lost; the host is back at 1,500 s
    # 3 hosts from 800 s on, segments of 286.7 s: five are saved before 2,500 s, 266.7 s are lost
    # the first host is back, the second is away: 3 hosts from 2,800 s on, three segments
    assert outcome.seconds == pytest.approx(2800 + 3 * (100 * 8 / 3 + 20))
    assert (outcome.failures, outcome.saving) == (2, 200)
    assert outcome.lost == pytest.approx(60 + 300 + 1700 - 5 * (100 * 8 / 3 + 20) + 300)


def test_a_failure_may_strike_a_restart() -> None:
    outcome = simulate(replace(PLAIN, mtbf=1.0), Scripted(500, 100))  # type: ignore[arg-type]
    assert outcome.seconds == pytest.approx(600 + 300 + 8 * 220)
    assert outcome.failures == 2
