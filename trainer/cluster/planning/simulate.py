"""A run with failures, simulated event by event: steps, saves, failures of hosts, new starts, repaired hosts."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MOST_TIMES = 50  # a run that takes 50 times as long as without failures counts as one that never ends


@dataclass(frozen=True)
class Scenario:
    """What to simulate; times are in seconds."""

    steps: int
    every: int  # steps between two checkpoints; the last step is saved, too
    save: float
    hosts: int
    step: Callable[[int], float]  # of a step, given the number of hosts up; infinite where they are too few to train
    mtbf: float  # of one host
    restart: float  # from a failure until the first new step: notice it, start, load
    repair: float  # until a failed host is back; 0: a spare host takes its place


@dataclass(frozen=True)
class Outcome:
    """Where the time of a simulated run went, in seconds."""

    seconds: float
    failures: int
    saving: float  # completed checkpoints
    lost: float  # steps and saves that a failure undid, new starts, and waiting for hosts

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return math.isfinite(self.seconds)


def simulate(scenario: Scenario, rng: np.random.Generator) -> Outcome:
    """Simulate a run from its first start to its last checkpoint.

    Hosts that are up fail at a constant rate, at any moment of steps, saves and restarts. As with `trainer.supervise`,
    the run continues at once on the hosts that are up, and adds a repaired host at the next start, not before.
    """
    limit = MOST_TIMES * scenario.steps * scenario.step(scenario.hosts)
    clock = saving = lost = 0.0
    done = failures = 0
    away: list[float] = []  # when each failed host is back
    while done < scenario.steps:
        began, up = clock, _hosts_up(scenario, away, clock)
        while not math.isfinite(scenario.step(up)):
            clock = away[0]
            up = _hosts_up(scenario, away, clock)
        failure = clock + rng.exponential(scenario.mtbf / up)
        start = clock + (scenario.restart if failures else 0.0)
        saved, end = _progress(scenario, done, scenario.step(up), failure - start)
        done += saved
        steps = saved * scenario.step(up)
        clock = start + end if done == scenario.steps else failure
        saves = math.ceil(saved / scenario.every)
        saving += saves * scenario.save
        lost += clock - began - steps - saves * scenario.save
        if done < scenario.steps:
            failures += 1
            if scenario.repair:
                heapq.heappush(away, failure + scenario.repair)
        if clock > limit:
            return Outcome(math.inf, failures, saving, lost)
    return Outcome(clock, failures, saving, lost)


def _hosts_up(scenario: Scenario, away: list[float], clock: float) -> int:
    while away and away[0] <= clock:
        heapq.heappop(away)
    return scenario.hosts - len(away)


def _progress(scenario: Scenario, done: int, step: float, seconds: float) -> tuple[int, float]:
    """Return how many steps are computed and saved in `seconds`, and how long computing and saving them takes."""
    segment = scenario.every * step + scenario.save
    left = scenario.steps - done
    whole, rest = divmod(left, scenario.every)
    needed = whole * segment + (rest * step + scenario.save if rest else 0.0)
    if needed <= seconds:
        return left, needed
    segments = min(whole, max(0, math.floor(seconds / segment)))
    return segments * scenario.every, segments * segment
