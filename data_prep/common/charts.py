"""SVG charts for self-contained pages: lines and histograms that differ in greyscale, too."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.common.figures import COLORS

DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")  # of the lines, for readers without colours
WIDTH, HEIGHT = 420, 220  # of a chart, in CSS pixels
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 26, 38  # margins
LEGEND = 16  # the height of a line of the legend, and of a bar
POINTS = 400  # the most points of a line: more points than pixels only make the page larger


class Line(NamedTuple):
    """A line of a chart."""

    x: np.ndarray  # [n], ascending
    y: np.ndarray  # [n], finite
    faint: bool = False  # drawn thin, in the colour of the line before, and not in the legend


def line_chart(title: str, lines: Mapping[str, Line], x_label: str) -> str:
    """Draw lines by name; the axes hold all of their points."""
    x, y = (np.concatenate([getattr(line, axis) for line in lines.values()]) for axis in "xy")
    frame = _Frame(x, y)
    shapes: list[str] = []
    legend: list[str] = []
    for name, line in lines.items():
        style = len(legend) - line.faint
        at = np.unique(np.linspace(0, len(line.x) - 1, POINTS).round().astype(int))
        points = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in zip(line.x[at], line.y[at], strict=True))
        looks = 'stroke-width="1" opacity=".4"' if line.faint else f'stroke-width="2" stroke-dasharray="{_dash(style)}"'
        shapes.append(f'<polyline fill="none" stroke="{_color(style)}" {looks} points="{points}"/>')
        if not line.faint:
            legend.append(name)
    return _svg(title, [*frame.axes(x_label), *shapes], legend if len(legend) > 1 else [])


def histogram(title: str, groups: Mapping[str, np.ndarray], x_label: str, bins: int = 32) -> str:
    """Draw the distribution of each group's numbers, with bins as shares of the group; no group may be empty."""
    every = np.concatenate(list(groups.values()))
    edges = np.linspace(every.min(), every.max() if every.max() > every.min() else every.min() + 1, bins + 1)
    shares = {name: np.histogram(numbers, edges)[0] / len(numbers) for name, numbers in groups.items()}
    frame = _Frame(edges, np.concatenate([[0.0], *shares.values()]))
    shapes = []
    for style, share in enumerate(shares.values()):
        steps = [(edges[0], 0.0)]
        for start, end, height in zip(edges[:-1], edges[1:], share, strict=True):
            steps += [(start, height), (end, height)]
        points = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in [*steps, (edges[-1], 0.0)])
        looks = f'fill="{_color(style)}" fill-opacity=".15" stroke="{_color(style)}" stroke-width="1.5"'
        shapes.append(f'<polygon {looks} stroke-dasharray="{_dash(style)}" points="{points}"/>')
    return _svg(title, [*frame.axes(x_label), *shapes], list(shares))


class _Frame:
    """The scales of a chart, and its axes."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x_ticks, self.y_ticks = _ticks(x.min(), x.max()), _ticks(y.min(), y.max())
        self.x_ends = min(x.min(), x.max()), max(x.max(), x.min() + 1e-12)
        self.y_ends = min(self.y_ticks[0], y.min()), max(self.y_ticks[-1], y.max(), y.min() + 1e-12)

    def x(self, value: float) -> float:
        """Return the horizontal position of a number, in pixels."""
        low, high = self.x_ends
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        """Return the vertical position of a number, in pixels from the top."""
        low, high = self.y_ends
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    def axes(self, x_label: str) -> Iterable[str]:
        """Grid lines, numbers and the label of the horizontal axis."""
        for value in self.y_ticks:
            y = self.y(value)
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
        for value in self.x_ticks:
            if self.x_ends[0] <= value <= self.x_ends[1]:
                x = self.x(value)
                anchor = "end" if x > WIDTH - RIGHT - 12 else "middle"
                yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="{anchor}">{_number(value)}</text>'
        yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, at most seven, from about `low` to about `high`."""
    low, high = float(low), float(high)
    if high - low <= 1e-6 * max(abs(low), abs(high)):  # equal, or too close to have different labels
        high = low + (abs(low) or 1.0)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-10))
    return [i * step for i in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _color(style: int) -> str:
    return COLORS[style % len(COLORS)]


def _dash(style: int) -> str:
    return DASHES[style % len(DASHES)]


def _svg(title: str, shapes: Iterable[str], legend: Sequence[str]) -> str:
    height = HEIGHT + LEGEND * len(legend)
    keys = [
        f'<line x1="{LEFT}" x2="{LEFT + 26}" y1="{y - 4}" y2="{y - 4}" stroke="{_color(style)}" stroke-width="2" '
        f'stroke-dasharray="{_dash(style)}"/><text x="{LEFT + 32}" y="{y}">{escape(name)}</text>'
        for style, name in enumerate(legend)
        for y in [HEIGHT + LEGEND * style + 10]
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{escape(title)}"><text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>'
        f"{''.join(shapes)}{''.join(keys)}</svg>"
    )
