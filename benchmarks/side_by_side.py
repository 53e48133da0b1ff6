"""Rival ways to do one job, measured in turn in one run: A B A B, so that a busy machine slows all of them."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.common.files import make_directory, whole_file

Values = dict[str, list[float]]


def alternate(rivals: Mapping[str, Callable[[], float]], rounds: int) -> Values:
    """Measure each rival once in every round; return each one's values by round."""
    values: Values = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, measure in rivals.items():
            values[name].append(measure())
    return values


def ratios(over: Sequence[float], under: Sequence[float]) -> dict[str, float]:
    """Min, median and max of the ratio within each round."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Min, median and max."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def in_words(name: str, numbers: Mapping[str, float], unit: str = "") -> str:
    """One line: the median, and the range."""
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
