"""Compare whole runs of the user's command: another checkout, or other numbers of ranks and threads. On a CPU.

A run's rate follows from the times at which its progress lines arrive, so it does not matter what a checkout counts as
a token.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from benchmarks.common.made_up_text import json_lines
from benchmarks.common.side_by_side import Values, ratios, rounds, spread
from benchmarks.common.step_cases import CASES, DEMO_WORDS, RECIPES
from benchmarks.common.training import file_name, launcher
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.recipe.yaml_file import read

ROOT = Path(__file__).parents[2]
RUN_STEPS, LINE_STEPS = 25, 5  # steps of a run, and between progress lines; the time before the first is ignored
DOCUMENTS = 600
CHUNK_TOKENS = 2048
LINE = re.compile(r"^step (\d+)/\d+ .* ([\d.]+)k tokens/s")
DROPPED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Way:
    """A way to train: a checkout, how many ranks, how many threads each; and how many such runs at once."""

    checkout: Path
    ranks: int = 1
    threads: int = 1
    runs: int = 1


def against(other: Path) -> dict[str, Way]:
    """Return this checkout and another as ways to train."""
    if not (other / "trainer" / "pretrain.py").is_file():
        raise InputError(f"--against: {other} is not a checkout of deepsiam: make one with git worktree add")
    return {"this checkout": Way(ROOT), "the other": Way(other.resolve())}


def scaling() -> dict[str, Way]:
    """Return two ways to use two cores, one core, and the most that two cores can do: two independent runs."""
    return {
        "2 ranks x 1 thread": Way(ROOT, 2, 1),
        "1 rank x 2 threads": Way(ROOT, 1, 2),
        "1 rank x 1 thread": Way(ROOT),
        "2 runs of 1 rank x 1 thread": Way(ROOT, runs=2),
    }


def compare(case: str, ways: Mapping[str, Way], folder: Path, seconds: float) -> dict[str, Any]:
    """Train a case in each way in turn, within about `seconds`; return steps a second and the first one's ratios."""
    end = time.monotonic() + seconds
    text = folder / "text.jsonl"
    text.write_text("".join(islice(json_lines(DEMO_WORDS), DOCUMENTS)))
    shards = {checkout: prepare(checkout, text, folder) for checkout in {way.checkout for way in ways.values()}}
    recipes = {checkout: write_recipe(case, made) for checkout, made in shards.items()}
    values = rounds({name: partial(train, way, recipes[way.checkout]) for name, way in ways.items()}, end)
    return in_numbers(values)


def in_numbers(values: Values) -> dict[str, Any]:
    """Turn steps a second, by round, into their spread and the first way's ratios to the others."""
    first, *others = values
    return {
        "steps_per_second": {name: spread(rates) for name, rates in values.items()},
        "ratios": {f"{first} / {name}": ratios(values[first], values[name]) for name in others},
    }


def prepare(checkout: Path, text: Path, folder: Path) -> Path:
    """Make shards, unless they exist, by a checkout's own command, because the format differs between checkouts."""
    out = folder / file_name(str(checkout).strip("/").replace("/", "-"))
    if out.exists():
        return out / "shards"
    sizes = ["--vocab-size", DEMO_WORDS, "--chunk-tokens", CHUNK_TOKENS, "--keep-duplicates", "--workers", 1]
    command = [sys.executable, "-m", "data_prep", "jsonl", text, "--out", out, *sizes]
    run(command, Way(checkout))
    return out / "shards"


def write_recipe(case: str, shards: Path) -> Path:
    """Write a case's recipe, at its small size and without `extends`, next to `shards`, on which it trains."""
    path = shards.parent / f"{case}.yaml"
    values = read(RECIPES / CASES[case].recipe, CASES[case].cpu)
    values["trunk"].pop("vocab_size", None)  # the tokenizer's
    values |= {
        "run": str(path.with_suffix("")),
        "steps": RUN_STEPS,
        "log_every": LINE_STEPS,
        "data": {"shards": str(shards), "lanes": 4, "window": 4},
        "checkpoint": {"every": RUN_STEPS},
    }
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def train(way: Way, recipe: Path) -> float:
    """Train from the start; return the optimizer steps a second of all runs together."""
    with ThreadPoolExecutor(way.runs) as pool:
        return sum(pool.map(partial(train_once, way), [recipe] * way.runs))


def train_once(way: Way, recipe: Path) -> float:
    """Train once from the start; return optimizer steps a second."""
    folder = f"run-{time.monotonic_ns()}"
    command = [*launcher(way.ranks), "--module", "trainer.pretrain", recipe, f"run={recipe.parent / folder}"]
    return rate_of(run(command, way))


def rate_of(lines: Iterable[tuple[float, str]]) -> float:
    """Return the steps a second between the first and the last progress line, given lines and their arrival times."""
    arrivals = [(seconds, int(found[1])) for seconds, line in lines if (found := LINE.match(line))]
    if len(arrivals) < 2:
        raise InputError(f"the run printed {len(arrivals)} progress lines: at least two are needed")
    (began, first), (ended, last) = arrivals[0], arrivals[-1]
    return (last - first) / (ended - began)


def run(command: Iterable[object], way: Way) -> list[tuple[float, str]]:
    """Run a command of a way's checkout; return its lines and their arrival times. Raise InputError if it fails."""
    environment = {key: value for key, value in os.environ.items() if key not in DROPPED}
    environment |= {"OMP_NUM_THREADS": str(way.threads), "DS_ACCELERATOR": "cpu"}
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=way.checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = [(time.monotonic(), line.rstrip()) for line in process.stdout]
    if process.wait():
        said = next((line for _, line in reversed(lines) if line), "it said nothing")
        raise InputError(f"{way.checkout}: a run failed with code {process.returncode}: {said}")
    return lines
