"""Hosts that start and hosts that die: seconds to the first step, and from pulling a cable to the next step."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common.side_by_side import rounds, spread
from deepsiam.data_prep.common.errors import InputError
from tests import toy
from tests.hosts import Hosts, network

Lines = list[tuple[float, str]]  # what a command printed, and when


@dataclass(frozen=True)
class StartSizes:
    """Numbers of hosts, with one rank each."""

    hosts: Sequence[int]


@dataclass(frozen=True)
class DeathSizes:
    """The hosts, the step at which the last one dies, and the seconds of silence after which it counts as dead."""

    hosts: int
    at: int
    hang_seconds: float


@contextmanager
def made(number: int) -> Iterator[tuple[Hosts, Path]]:
    """Yield hosts and a recipe of a toy run; raise InputError where this machine cannot make hosts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = toy.write_shards(folder / "data")
        recipe = toy.seed_recipe(
            folder / "run.yaml", shards, steps=12, batch={"size": 16, "micro": 4}, checkpoint={"every": 5}
        )
        with network(folder, number) as hosts:
            yield hosts, recipe


def start_up(sizes: StartSizes, seconds: float) -> dict[str, Any]:
    """Measure the seconds from the command to the line of the first step, by the number of hosts."""
    end = time.monotonic() + seconds
    with made(max(sizes.hosts)) as (hosts, recipe):

        def once(number: int) -> float:
            run = recipe.with_name(f"run-{time.monotonic_ns()}")
            lines = watch(hosts, launch(hosts, number, recipe, f"run={run}", "steps=1"), {})
            return when(lines, "step 1/") - lines[0][0]

        measures = {f"{number} hosts": partial(once, number) for number in sizes.hosts}
        values = rounds(measures, end)
    return {"seconds": values, "spread": {name: spread(found) for name, found in values.items()}}


def death(sizes: DeathSizes, seconds: float) -> dict[str, Any]:
    """Pull the last host's cable while a supervised run trains; measure the seconds until its next step, in parts."""
    end = time.monotonic() + seconds
    parts: dict[str, list[float]] = {"noticed": [], "started again": [], "next step": []}
    with made(sizes.hosts) as (hosts, recipe):

        def once() -> float:
            run = recipe.with_name(f"run-{time.monotonic_ns()}")
            command = launch(hosts, sizes.hosts, recipe, f"run={run}", f"faults.hang_seconds={sizes.hang_seconds}")
            supervised = [sys.executable, "-m", "trainer.supervise", "--", *command]
            last = sizes.hosts - 1
            try:
                lines = watch(hosts, supervised, {f"step {sizes.at}/": lambda: hosts.cut(last)})
            finally:
                hosts.mend(last)
            cut = when(lines, f"step {sizes.at}/")
            noticed = when(lines, "ended with code", cut)
            again = when(lines, "starting ", noticed, "--include")
            stepped = when(lines, "step ", again, " tokens/s")
            for name, value in zip(parts, (noticed - cut, again - noticed, stepped - again), strict=True):
                parts[name].append(value)
            return stepped - cut

        values = rounds({"from death to the next step": once}, end)
    found = {**values, **parts}
    return {"seconds": found, "spread": {name: spread(each) for name, each in found.items()}}


def launch(hosts: Hosts, number: int, recipe: Path, *overrides: str) -> list[str]:
    """Return the command line that trains on the first hosts."""
    options = ["--hostfile", str(hosts.hostfile), "--include", "@".join(hosts.addresses[:number])]
    launcher = [str(Path(sys.executable).with_name("deepspeed")), *options]
    return [*launcher, "--module", "trainer.pretrain", str(recipe), *overrides]


def watch(hosts: Hosts, command: Sequence[str], at: Mapping[str, Callable[[], None]]) -> Lines:
    """Run a command on the first host; act at the first line with each key of `at`. Return its lines, first an ""."""
    lines: Lines = [(time.monotonic(), "")]
    waiting = dict(at)
    with subprocess.Popen(
        hosts.on_first(list(command)),
        cwd=toy.ROOT,
        env=hosts.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append((time.monotonic(), line.rstrip()))
            for words in [words for words in waiting if words in line]:
                waiting.pop(words)()
    if process.returncode:
        raise InputError(f"{' '.join(command)} ended with code {process.returncode}: {lines[-1][1]}")
    return lines


def when(lines: Lines, words: str, after: float = 0.0, also: str = "") -> float:
    """Return the time of the first line with these words later than `after`; raise InputError if there is none."""
    for seconds, line in lines:
        if words in line and also in line and seconds > after:
            return seconds
    raise InputError(f"no line of the run says {words!r}: {lines[-1][1]}")
