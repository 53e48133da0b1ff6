"""One or two ranks, each on its own core: the seconds of a step by the micro-batches of a rank.

    deepspeed ... --module benchmarks.scaling.ranks SETTINGS

runs one rank. `measure` in this file starts it, and compares one rank, two ranks, and two runs of one rank at once.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common.side_by_side import ratios, rounds, spread
from benchmarks.common.training import launcher
from benchmarks.scaling.rank_steps import RankSteps, end, timed
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine.world import World, join

ROOT = Path(__file__).parents[2]
CASE = "seed-demo"  # of benchmarks.common.step_cases
ONE, TWO, APART = "1 rank", "2 ranks", "2 runs of 1 rank"


@dataclass(frozen=True)
class RankSettings:
    """What a rank must do."""

    micro: int  # examples of a micro-batch
    accumulations: Sequence[int]  # numbers of micro-batches that a rank has in a step
    steps: int  # for each of these numbers
    core: int = 0  # of the first rank; the others have the next ones
    changes: Sequence[str] = ("deepspeed=cpu",)  # to the case's recipe
    out: str = ""


def main() -> None:
    """Run one rank."""
    settings = RankSettings(**json.loads(Path(sys.argv[-1]).read_text()))
    world = World.from_environment()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(settings.core + world.rank) % len(cores)]})
    join(world)
    seconds = {}
    for accumulation in settings.accumulations:
        steps = RankSteps(CASE, settings.changes, settings.micro, accumulation, world)
        steps.take()  # the first one allocates
        seconds[accumulation] = statistics.median(timed(steps.take) for _ in range(settings.steps))
    if world.rank == 0:
        Path(settings.out).write_text(json.dumps(seconds))
    end()


def measure(settings: RankSettings, seconds: float) -> dict[str, Any]:
    """Start the three ways in turn, within about `seconds`; return the seconds of a step, and the scaling."""
    measured: dict[str, list[dict[int, float]]] = {ONE: [], TWO: [], APART: []}

    def once(way: str) -> float:
        start = time.monotonic()
        measured[way].append(run(settings, 2 if way == TWO else 1, 2 if way == APART else 1))
        return time.monotonic() - start

    rounds({way: partial(once, way) for way in measured}, time.monotonic() + seconds)
    by_size = {
        way: {size: [one[size] for one in every] for size in settings.accumulations} for way, every in measured.items()
    }
    return {"micro": settings.micro, "seconds": by_size, **scaling(by_size, settings.accumulations)}


def scaling(seconds: dict[str, dict[int, list[float]]], accumulations: Sequence[int]) -> dict[str, Any]:
    """Return efficiencies and speed-ups by micro-batches, and the break-even batch.

    weak: the seconds of one rank's step over those of two ranks with as many micro-batches each; 1 is perfect.
    possible: the same for two runs that do not wait for each other: the most that the two cores can do.
    strong: the seconds of one rank's step over those of two ranks that share its micro-batches; 2 is perfect.
    break_even: the fewest micro-batches of a step for which two ranks take less time than one (median above 1).
    """
    one, two, apart = (seconds[way] for way in (ONE, TWO, APART))
    strong = {size: ratios(one[size], two[size // 2]) for size in accumulations if size // 2 in two and not size % 2}
    faster = [size for size, ratio in strong.items() if ratio["median"] > 1]
    return {
        "weak": {size: ratios(one[size], two[size]) for size in accumulations},
        "possible": {size: ratios(one[size], apart[size]) for size in accumulations},
        "strong": strong,
        "break_even": min(faster, default=None),
        "step": {way: {size: spread(values) for size, values in sizes.items()} for way, sizes in seconds.items()},
    }


def run(settings: RankSettings, ranks: int, runs: int) -> dict[int, float]:
    """Start `runs` runs at the same time; return the mean seconds of a step by the micro-batches of a rank."""
    with TemporaryDirectory() as name:
        started = []
        for number in range(runs):
            own = replace(settings, core=number, out=str(Path(name, f"out{number}.json")))
            Path(name, f"{number}.json").write_text(json.dumps(asdict(own)))
            command = [*launcher(ranks), "--module", "benchmarks.scaling.ranks", str(Path(name, f"{number}.json"))]
            environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
            started.append(subprocess.Popen(command, cwd=ROOT, env=environment))
        codes = [process.wait() for process in started]
        if any(codes):
            raise InputError("a run failed: see above")
        found = [json.loads(Path(name, f"out{number}.json").read_text()) for number in range(runs)]
    return {int(size): statistics.mean(one[size] for one in found) for size in found[0]}


if __name__ == "__main__":
    main()
