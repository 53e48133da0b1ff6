"""The chart of a benchmark's ratios: a bar for the median, a line from the minimum to the maximum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common import figures

WIDE = 20  # a largest ratio above this gets a logarithmic axis


@dataclass(frozen=True)
class Bar:
    """A ratio: its name beside the bar, the color's name in the legend, and its min, median and max."""

    name: str
    color: str
    numbers: Mapping[str, float]


def of_parts(parts: Mapping[str, Mapping[str, Any]]) -> list[Bar]:
    """Return the bars of a benchmark's parts, a color for each part and its unit."""
    return [
        Bar(name, f"{part}: ratio of {result.get('unit', 'seconds')}", numbers)
        for part, result in parts.items()
        for name, numbers in result.get("ratios", {}).items()
    ]


def draw(bars: Sequence[Bar], machine: Mapping[str, Any], path: Path) -> Path:
    """Draw the bars from top to bottom, with the machine as title; return the path."""
    colors = dict(zip(dict.fromkeys(bar.color for bar in bars), cycle((*figures.COLORS, figures.GREY)), strict=False))
    figure, (panel,) = figures.new_figure(1, 7, 1.4 + 0.28 * len(bars))
    for label, color in colors.items():
        places = [place for place, bar in enumerate(bars) if bar.color == label]
        least, middle, most = ([bars[place].numbers[key] for place in places] for key in ("min", "median", "max"))
        errors = [
            [m - low for m, low in zip(middle, least, strict=True)],
            [h - m for h, m in zip(most, middle, strict=True)],
        ]
        panel.barh(places, middle, xerr=errors, color=color, ecolor="black", capsize=2, label=label)
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_yticks(range(len(bars)), [bar.name for bar in bars])
    panel.invert_yaxis()
    if max(bar.numbers["max"] for bar in bars) > WIDE:
        panel.set_xscale("log")
    panel.set_title(machine["gpu"] or machine["cpu"], fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    return figures.save(figure, path)
