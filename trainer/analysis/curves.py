"""One logged scalar of several runs in one figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.figures import COLORS, new_figure, save
from deepsiam.trainer.analysis.plots import Curve, read_scalars, smooth


def print_curves(runs: Sequence[tuple[str, Path]], tag: str, out: Path) -> None:
    """Draw a scalar of named runs; print where, and each run's last mean."""
    require("evaluate", "matplotlib")
    curves = {name: read_curve(run, tag) for name, run in runs}
    print(draw_curves(curves, tag, out))
    for name, (steps, values) in curves.items():
        print(f"{name}: {smooth(values)[-1]:.4f} at step {steps[-1]:,}")


def read_curve(run: Path, tag: str) -> Curve:
    """Read one scalar that a run logged; raise InputError, which lists the run's tags, where it has no such tag."""
    scalars = read_scalars(run)
    if tag not in scalars:
        raise InputError(f"{run}: has not logged {tag}; it has {', '.join(sorted(scalars)) or 'nothing'}")
    return scalars[tag]


def draw_curves(curves: dict[str, Curve], tag: str, out: Path) -> Path:
    """Plot curves over optimizer steps, as moving averages."""
    figure, (panel,) = new_figure(1, width=6.0, height=3.8)
    for color, (name, (steps, values)) in zip(COLORS * len(curves), curves.items(), strict=False):
        panel.plot(steps, smooth(values), color=color, linewidth=2.0, label=name)
    panel.legend(frameon=False)
    panel.set_xlabel("optimizer step")
    panel.set_ylabel(f"{tag}, moving average")
    panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    return save(figure, out)
