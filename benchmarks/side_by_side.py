"""Rival ways to do one job, measured in turn in one run: A B A B, so that a busy machine is unfair to none."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.files import make_directory, whole_file

Values = dict[str, list[float]]


def alternate(rivals: Mapping[str, Callable[[], float]], rounds: int) -> Values:
    """What each rival measured in each round; one round goes through all of them."""
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
    """One line: the median, and from where to where it went."""
    low, middle, high = (_short(numbers[key]) for key in ("min", "median", "max"))
    return f"{name:<58} {middle:>10} {unit:<9} ({low} to {high})"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def write(path: Path, results: Mapping[str, Any]) -> None:
    """The results as JSON."""
    make_directory(path.parent)
    with whole_file(path) as file:
        file.write((json.dumps(results, indent=1) + "\n").encode())
    print(f"wrote {path}")
