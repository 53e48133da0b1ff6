"""A plan as text: assumptions, a table, the recipe's changes, where more hosts stop paying off; and as a chart."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from deepsiam.data_prep.common.figures import COLORS, GREY, new_figure, save
from deepsiam.data_prep.common.progress import amount
from deepsiam.trainer.cluster.planning.communication import Link
from deepsiam.trainer.cluster.planning.training import PAYS, Limit, Machines, PlanRow

NOTICE = "Computed, not measured: a model of machines that were not there."
COLUMNS: dict[str, Callable[[PlanRow], str]] = {
    "hosts": lambda row: f"{row.hosts:,}",
    "ranks": lambda row: f"{row.ranks:,}",
    "micro x acc.": lambda row: f"{row.micro} x {row.micro_batches}",
    "compute": lambda row: _time(row.step.compute),
    "exposed": lambda row: _time(row.step.exposed),
    "step": lambda row: _time(row.step_seconds),
    "tokens/s": lambda row: f"{row.tokens_per_second:,.0f}",
    "sends": lambda row: amount(row.step.sent),
    "reads": lambda row: f"{amount(row.read)}/s",
    "ZeRO fits": lambda row: " ".join(map(str, row.fits)) or "none",
    "hours": lambda row: _number(row.hours),
    "GPU-hours": lambda row: _number(row.gpu_hours),
}


def training(rows: Sequence[PlanRow], limits: Sequence[Limit], assumptions: Sequence[str]) -> str:
    """Return the plan of a training as text."""
    lines = [NOTICE, *assumptions, ""]
    lines += table(list(COLUMNS), [[show(row) for show in COLUMNS.values()] for row in rows])
    lines += [line for row in rows for line in changes(row)]
    loaders, share = (max(getattr(row, name) for row in rows) for name in ("loaders", "read_share"))
    lines += [
        f"Loading: at most {share:.1%} of a host's disk, and {loaders:.2f} of a core like this one for a rank",
        "",
    ]
    return "\n".join([*lines, *pays(limits)])


def changes(row: PlanRow) -> Iterator[str]:
    """Yield what differs from the recipe, if anything."""
    if row.changes:
        remark = "" if row.same_experiment else " (another experiment)"
        yield f"{row.ranks:,} ranks cannot share the recipe: planned with {' '.join(row.changes)}{remark}"


def pays(limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a table of where more hosts stop paying off."""
    yield f"A host does at least {PAYS:.0%} of what one alone does with ZeRO-1, up to so many hosts:"
    stages = sorted({limit.stage for limit in limits})
    rows = []
    for batch in sorted({limit.batch for limit in limits}):
        limits_by_stage = {limit.stage: limit for limit in limits if limit.batch == batch}
        rows.append([f"{batch:,}", *(_limit(limits_by_stage[stage]) for stage in stages)])
    yield from table(["batch.size", *(f"ZeRO-{stage}" for stage in stages)], rows)


def machine_lines(machines: Machines, speed: str) -> list[str]:
    """Return a line for each group of assumptions."""
    between, within = machines.between, machines.within
    overlap = "half at ZeRO-3, none below" if machines.overlap is None else f"{machines.overlap:.0%}"
    return [
        f"Compute: {speed}",
        f"Links, {machines.backend}: a host {_link(between)}; within it {_link(within)}; "
        f"overlap with compute: {overlap}",
        f"Disks: a host reads {machines.disk / 1e9:g} GB/s",
    ]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return columns as lines of text, wide enough for their longest cell."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [heads, *rows]]


def draw(rows: Sequence[PlanRow], out: Path) -> Path:
    """Draw over the number of hosts: tokens a second, and the parts of a step."""
    figure, (rate, step) = new_figure(2, width=4.2, height=3.6)
    hosts, names = [row.hosts for row in rows], [str(row.hosts) for row in rows]
    first_row = rows[0]
    ideal = [first_row.tokens_per_second * row.hosts / first_row.hosts for row in rows]
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


def _limit(limit: Limit) -> str:
    if not limit.hosts:
        return f"not even 1 ({limit.because})"
    return f"{limit.hosts:,} ({limit.because})" if limit.because else f"{limit.hosts:,} or more"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 1.5 * size:
            return f"{_number(seconds / size)} {unit}"
    return f"{_number(1000 * seconds)} ms"


def _link(link: Link) -> str:
    return f"{link.bandwidth / 1e9:.4g} GB/s, {1e6 * link.latency:g} us a message"
