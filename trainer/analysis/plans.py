"""A chart of a plan: how a training scales."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.figures import COLORS, GREY, new_figure, save
from deepsiam.trainer.cluster.planning.training import PlanRow


def draw(rows: Sequence[PlanRow], out: Path) -> Path:
    """Draw over the number of hosts: tokens a second, and the parts of a step."""
    figure, (rate, step) = new_figure(2, width=4.2, height=3.6)
    hosts, names = [row.hosts for row in rows], [str(row.hosts) for row in rows]
    first = rows[0]
    ideal = [first.tokens_per_second * row.hosts / first.hosts for row in rows]
    rate.plot(hosts, ideal, color=GREY, linestyle=":", label="as fast for each host")
    rate.plot(hosts, [row.tokens_per_second for row in rows], "o-", color=COLORS[0], label="planned")
    rate.set(xscale="log", yscale="log", xlabel="hosts", ylabel="tokens a second")
    compute = [row.step.compute / row.step_seconds for row in rows]
    step.bar(names, compute, color=COLORS[0], label="compute")
    exposed = [row.step.exposed / row.step_seconds for row in rows]
    step.bar(names, exposed, bottom=compute, color=COLORS[1], label="communication")
    step.set(xlabel="hosts", ylabel="share of a step")
    rate.set_xticks(hosts, names)
    rate.minorticks_off()
    rate.legend(frameon=False)
    step.legend()
    figure.suptitle("Computed, not measured", fontsize=10, color=GREY)
    return save(figure, out)
