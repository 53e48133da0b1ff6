"""The chart of ratios: which bars it has, and that it is drawn."""

from pathlib import Path

from benchmarks.common import ratio_chart
from benchmarks.common.ratio_chart import Bar

MACHINE = {"gpu": None, "cpu": "a processor"}


def test_bars_of_parts_have_a_color_for_each_part_and_unit() -> None:
    numbers = {"min": 0.5, "median": 1.0, "max": 30.0}
    parts = {
        "encoding": {"unit": "passages/s", "ratios": {"a / b": numbers}},
        "path": {},
        "x": {"ratios": {"c": numbers}},
    }
    assert ratio_chart.of_parts(parts) == [
        Bar("a / b", "encoding: ratio of passages/s", numbers),
        Bar("c", "x: ratio of seconds", numbers),
    ]


def test_more_colors_than_the_palette_are_drawn(tmp_path: Path) -> None:
    bars = [Bar(str(i), f"color {i}", {"min": 0.5, "median": 1 + i, "max": 2 + 3 * i}) for i in range(12)]
    path = ratio_chart.draw(bars, MACHINE, tmp_path / "chart.png")
    assert path.read_bytes().startswith(b"\x89PNG")
