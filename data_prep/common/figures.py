"""Plain figures that need no display: their panels, their colours, and their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepsiam.data_prep.common.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, COLORS = "#6e6e6e", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, 2008


def new_figure(columns: int, width: float, height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Make plain panels, row by row, each `width` x `height` inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def save(figure: Figure, path: Path) -> Path:
    """Write a PNG, completely or not at all, and return its path."""
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=150)
    return path
