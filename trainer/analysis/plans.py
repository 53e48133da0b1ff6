"""Charts of plans: how a training scales, and how long a preparation takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepsiam.data_prep.common.figures import COLORS, GREY, new_figure, save
from deepsiam.trainer.cluster.planning.preparing import Preparation
from deepsiam.trainer.cluster.planning.training import PlanRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_training(rows: Sequence[PlanRow], out: Path) -> Path:
    """Draw over the number of hosts: tokens a second, the parts of a step, the days with and without failures."""
    figure, (rate, step, days) = new_figure(3, width=4.2, height=3.6)
    hosts = [row.hosts for row in rows]
    first = rows[0]
    ideal = [first.tokens_per_second * row.hosts / first.hosts for row in rows]
    rate.plot(hosts, ideal, color=GREY, linestyle=":", label="as fast for each host")
    rate.plot(hosts, [row.tokens_per_second for row in rows], "o-", color=COLORS[0], label="planned")
    rate.set(xscale="log", yscale="log", xlabel="hosts", ylabel="tokens a second")
    parts = {
        "compute": [row.step.compute / row.step_seconds for row in rows],
        "communication": [row.step.exposed / row.step_seconds for row in rows],
    }
    _stacked(step, [str(row.hosts) for row in rows], parts)
    step.set(xlabel="hosts", ylabel="share of a step")
    low, mean, high = (np.array([getattr(row, name) for row in rows]) for name in ("fewest_days", "days", "most_days"))
    days.plot(hosts, [row.ideal_days for row in rows], color=GREY, linestyle=":", label="without failures and saves")
    days.fill_between(hosts, low, high, color=COLORS[1], alpha=0.2, linewidth=0)
    days.plot(hosts, mean, "o-", color=COLORS[1], label="simulated: mean and range")
    days.set(xscale="log", yscale="log", xlabel="hosts", ylabel="days")
    for panel in (rate, days):
        panel.set_xticks(hosts, [str(number) for number in hosts])
        panel.minorticks_off()
    for panel in (rate, step, days):
        panel.legend(frameon=False)
    figure.suptitle("Computed, not measured", fontsize=10, color=GREY)
    return save(figure, out)


def draw_preparation(plans: Sequence[Preparation], out: Path) -> Path:
    """Draw the hours of the passes over the number of machines."""
    figure, (panel,) = new_figure(1, width=5.0, height=3.6)
    parts = {name: [getattr(plan, name) for plan in plans] for name in ("reading", "writing", "merging")}
    _stacked(panel, [str(plan.machines) for plan in plans], parts)
    panel.set(xlabel="machines", ylabel="hours")
    panel.legend(frameon=False)
    figure.suptitle("Computed, not measured", fontsize=10, color=GREY)
    return save(figure, out)


def _stacked(panel: Axes, names: Sequence[str], parts: dict[str, list[float]]) -> None:
    below = np.zeros(len(names))
    for color, (label, heights) in zip(COLORS, parts.items(), strict=False):
        panel.bar(names, heights, bottom=below, color=color, label=label)
        below += heights
