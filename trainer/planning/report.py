"""A plan as text: the assumptions, a table, what changes in the recipe, where more hosts stop paying."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from data_prep.common.progress import amount
from trainer.planning.communication import Link
from trainer.planning.machines import Machines
from trainer.planning.preparing import Preparation, Source
from trainer.planning.training import DAY, PAYS, Limit, Row

SAID = "Computed, not measured: a model of machines that were not there."
HEADS = (
    "hosts",
    "ranks",
    "micro x acc.",
    "compute s",
    "exposed s",
    "step s",
    "tokens/s",
    "ideal days",
    "save every",
    "days (range)",
    "GPU-hours",
    "lost",
    "ZeRO fits",
)


def training(rows: Sequence[Row], limits: Sequence[Limit], assumptions: Sequence[str]) -> str:
    """Return the plan of a training as text."""
    lines = [SAID, *assumptions, "", *table(HEADS, [cells(row) for row in rows]), ""]
    lines += [line for row in rows for line in notes(row)]
    lines += ["", *pays(limits)]
    return "\n".join(lines)


def cells(row: Row) -> list[str]:
    """Return a row of the table."""
    step = row.step
    return [
        f"{row.hosts:,}",
        f"{row.ranks:,}",
        f"{row.micro} x {row.micro_batches}",
        f"{step.compute:.4g}",
        f"{step.exposed:.4g}",
        f"{row.step_seconds:.4g}",
        f"{row.tokens_per_second:,.0f}",
        _number(row.ideal_days),
        f"{row.every:,} steps, {_time(row.every * row.step_seconds)}",
        f"{_number(row.days)} ({_number(row.fewest_days)} to {_number(row.most_days)})",
        f"{row.gpu_hours:,.0f}" if math.isfinite(row.gpu_hours) else "never ends",
        f"{row.share_lost:.1%}",
        ", ".join(map(str, row.fits)) or "none",
    ]


def notes(row: Row) -> Iterator[str]:
    """Yield what the table has no place for."""
    hosts = f"{row.hosts:,} host{'s' if row.hosts > 1 else ''}"
    if row.changes:
        other = "" if row.same_experiment else ": larger batches, another experiment"
        yield f"{hosts}: the recipe does not allow {row.ranks:,} ranks; planned with {' '.join(row.changes)}{other}"
    yield (
        f"{hosts}: a host sends {amount(row.step.sent)} a step and reads {amount(row.read)}/s of shards, "
        f"{row.loaders:.1f} loader processes a rank keep up; a checkpoint takes {_time(row.save_seconds)}, "
        f"all of them {row.share_saving:.1%}; {row.failures:.3g} failures; with checkpoint.every as in the recipe "
        f"{row.recipe_share_lost:.1%} would be lost"
    )


def pays(limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a table of where more hosts stop paying."""
    yield f"Twice the hosts are at least {PAYS} times as fast up to so many hosts:"
    stages = sorted({limit.stage for limit in limits})
    rows = []
    for batch in sorted({limit.batch for limit in limits}):
        of_batch = {limit.stage: limit for limit in limits if limit.batch == batch}
        rows.append([f"{batch:,}", *(_limit(of_batch[stage]) for stage in stages)])
    yield from table(["batch.size", *(f"ZeRO-{stage}" for stage in stages)], rows)


def preparing(source: Source, plans: Sequence[Preparation], assumptions: Sequence[str]) -> str:
    """Return the plan of a preparation as text."""
    heads = ("machines", "hours", "reading", "writing", "merging", "bottleneck")
    rows = [
        [str(plan.machines), *(_number(h) for h in (plan.hours, plan.reading, plan.writing, plan.merging))]
        + [plan.bottleneck]
        for plan in plans
    ]
    disk = f"Disk: {amount(source.text)} of clean text while it works, {amount(source.shards)} of shards."
    return "\n".join([SAID, source.what, *assumptions, "", *table(heads, rows), "", disk])


def of_machines(machines: Machines, speed: str) -> list[str]:
    """Return a line for each group of assumptions."""
    between, within = machines.between, machines.within
    overlap = "none below ZeRO-3, 50 % there" if machines.overlap is None else f"{machines.overlap:.0%}"
    back = f"{machines.repair / 3600:g} h later" if machines.repair else "a spare one takes its place"
    return [
        f"Compute: {speed}",
        f"Links, {machines.backend}: between hosts {_link(between)}, within {_link(within)}; beside compute: {overlap}",
        f"Disks: a host reads {machines.disk / 1e9:g} GB/s; checkpoints {machines.storage / 1e9:g} GB/s in all, "
        f"{machines.writer / 1e9:g} GB/s a rank",
        f"Failures: one in {machines.mtbf / DAY:g} days a host; {machines.restart / 60:g} min to train again; {back}",
    ]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return columns as lines of text, wide enough for their longest cell."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [heads, *rows]]


def _limit(limit: Limit) -> str:
    if not limit.hosts:
        return "not even 1 (batch.size)"
    return f"{limit.hosts:,} ({limit.because})" if limit.because else f"{limit.hosts:,} or more"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


def _link(link: Link) -> str:
    return f"{link.bandwidth / 1e9:.4g} GB/s and {1e6 * link.latency:g} us a message"
