"""Shared by all plots: the curves of a run, a plain figure without a display, and its file."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_prep.common.errors import InputError
from data_prep.common.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[np.ndarray, np.ndarray]  # steps int64 [n], values fp64 [n]
GREY, COLORS = "#6e6e6e", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, 2008


def read_scalars(run: Path) -> dict[str, Curve]:
    """Read the finite scalars that a run logged, by tag; where a resumed run logged a step twice, keep the last value.

    Raise InputError where the run has no events.
    """
    if not (run / "tensorboard").is_dir():
        raise InputError(f"{run}: has logged nothing: it has no folder tensorboard; name another run")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of every resumed run
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    curves = {}
    for tag in events.Tags()["scalars"]:
        by_step = {event.step: event.value for event in events.Scalars(tag) if math.isfinite(event.value)}
        if steps := sorted(by_step):
            curves[tag] = (np.array(steps), np.array([by_step[step] for step in steps]))
    return curves


def smooth(values: np.ndarray) -> np.ndarray:
    """Average each value with its neighbours, over about a tenth of the points: fp64 [n].

    The window is centred, and narrower at the start, so that it does not lag where the loss falls fastest; at the end
    it covers earlier points only.
    """
    half = max(1, len(values) // 20)
    points = np.arange(len(values))
    first = np.maximum(points - half, 0)
    last = np.minimum(points + np.minimum(half, points), len(values) - 1)
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return (sums[last + 1] - sums[first]) / (last + 1 - first)


def new_figure(columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Make a row of plain panels, each `width` x `height` inches, without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(1, columns, squeeze=False)[0])
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def save(figure: Figure, path: Path) -> Path:
    """Write a PNG, completely or not at all, and return its path."""
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=150)
    return path
