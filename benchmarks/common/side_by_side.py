"""Rival ways to do one job, measured in turn in one run (A B A B), so that a busy machine slows all of them."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import ratio_chart
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import make_directory, whole_file

RESULTS = Path(__file__).parents[1] / "results"
LEAST_ROUNDS, MOST_ROUNDS = 3, 50

Values = dict[str, list[float]]
Job = Callable[[float], dict[str, Any]]  # the seconds that it may take -> results


class TooLongError(Exception):
    """A measurement does not fit into the time that is left."""


def alternate(rivals: Mapping[str, Callable[[], float]], rounds: int) -> Values:
    """Measure each rival once in every round; return each rival's values by round."""
    values: Values = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, measure in rivals.items():
            values[name].append(measure())
    return values


def rounds(measures: Mapping[str, Callable[[], float]], end: float) -> Values:
    """Measure in turn until about `end`, a time of `time.monotonic`; the first round shows how many fit."""
    began = time.monotonic()
    first = alternate(measures, 1)
    round_seconds = time.monotonic() - began
    left = max(0.0, end - time.monotonic())
    if left < (LEAST_ROUNDS - 1) * round_seconds:
        raise TooLongError(
            f"a round takes {round_seconds:.1f} s, and {left:.0f} s are left for {LEAST_ROUNDS - 1} more"
        )
    more = alternate(measures, min(MOST_ROUNDS - 1, int(left / round_seconds)))
    return {name: first[name] + values for name, values in more.items()}


def run_all(
    jobs: Mapping[str, Job], end: float, lines_of: Callable[[str, dict[str, Any]], Iterable[str]]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Run the jobs, each in its share of the time until `end`, and print the lines of each one's results.

    Return the results, and why any jobs were skipped, both by name.
    """
    results, skipped = {}, {}
    for number, (name, job) in enumerate(jobs.items()):
        try:
            results[name] = job((end - time.monotonic()) / (len(jobs) - number))
        except TooLongError as error:
            skipped[name] = str(error)
            print(f"{name}: skipped: {error}: give more --minutes, or name fewer", flush=True)
        else:
            for line in lines_of(name, results[name]):
                print(line, flush=True)
    return results, skipped


def part_options(
    argv: Sequence[str] | None, name: str, description: str, parts: Iterable[str], minutes: float, out: str
) -> argparse.Namespace:
    """Parse the command line of a benchmark in parts, for `run_parts`; `out` is a file in benchmarks/results."""
    parser = argparse.ArgumentParser(prog=name, description=description.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=list(parts), help="(all)")
    parser.add_argument("--minutes", type=float, default=minutes, help="for everything (%(default)s)")
    parser.add_argument("--sizes", type=json.loads, default={}, metavar="JSON", help='{"PART": {"KEY": VALUE}}')
    parser.add_argument("--out", type=Path, default=RESULTS / out, help="(benchmarks/results/...)")
    return parser.parse_args(argv)


def run_parts(
    chosen: argparse.Namespace,
    parts: Mapping[str, Callable[..., dict[str, Any]]],
    default: Mapping[str, Any],
    machine: Mapping[str, Any],
    lines_of: Callable[[str, dict[str, Any]], Iterable[str]],
) -> None:
    """Run the chosen parts of a benchmark, print their lines, write the results and draw the chart of their ratios.

    Args:
        chosen: `parts`, `minutes` for all of them, `sizes` that differ from the default, and the file `out`.
        parts: functions from a part's sizes and the seconds that it may take to its results.
        default: a dataclass of sizes for each part.
        machine: what the numbers depend on.
        lines_of: returns the lines to print for a part.

    Raises:
        InputError: an unknown part or key in the sizes, or matplotlib is not installed.
    """
    require("evaluate", "matplotlib")
    end = time.monotonic() + 60 * chosen.minutes
    sizes = sizes_of(default, chosen.sizes)
    jobs: dict[str, Job] = {part: partial(parts[part], sizes[part]) for part in chosen.parts}
    results: dict[str, Any] = {"machine": machine, "sizes": {part: asdict(sizes[part]) for part in jobs}}
    results["parts"], results["skipped"] = run_all(jobs, end, lines_of)
    write(chosen.out, results)
    if bars := ratio_chart.of_parts(results["parts"]):
        print(f"wrote {ratio_chart.draw(bars, machine, chosen.out.with_suffix('.png'))}")


def sizes_of(default: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sizes of all parts, with changes applied; raise InputError for an unknown part or key."""
    for part, values in changes.items():
        if part not in default:
            raise InputError(f"--sizes: no part {part}: name one of {', '.join(default)}")
        if unknown := values.keys() - asdict(default[part]).keys():
            raise InputError(f"--sizes: {part} has no {min(unknown)}: name one of {', '.join(asdict(default[part]))}")
    return {part: replace(sizes, **changes.get(part, {})) for part, sizes in default.items()}


def ratios(over: Sequence[float], under: Sequence[float]) -> dict[str, float]:
    """Return min, median and max of the ratio within each round."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return min, median and max."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def in_words(name: str, numbers: Mapping[str, float], unit: str = "") -> str:
    """Format the median and the range in one line."""
    low, middle, high = (_short(numbers[key]) for key in ("min", "median", "max"))
    return f"{name:<58} {middle:>10} {unit:<9} ({low} to {high})"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write the results as JSON."""
    make_directory(path.parent)
    with whole_file(path) as file:
        file.write((json.dumps(results, indent=1) + "\n").encode())
    print(f"wrote {path}")
