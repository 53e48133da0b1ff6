"""The report on all runs below a folder: plots of losses and results, and the page; what `trainer.report` makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.figures import COLORS, GREY, new_figure, save
from deepsiam.data_prep.common.files import make_directory, whole_file
from deepsiam.trainer.analysis.plots import Curve, read_scalars, smooth
from deepsiam.trainer.analysis.report_page import report_page
from deepsiam.trainer.ranking.evaluation.metrics import HEADINGS
from deepsiam.trainer.ranking.evaluation.results_file import Results, read_results
from deepsiam.trainer.ranking.evaluation.table import compared, title

LOSSES = {  # loss term: its name, its unit
    "mlm": ("masked language model", "nats per masked token"),
    "decoder": ("weak decoder", "nats per token"),
    "softmax": ("in-batch softmax", "nats per query"),
    "hinge": ("triplet hinge", "margin units per query"),
}
PAGE = "report.html"
RESULTS_PLOT = "results"


def report(folder: Path) -> None:
    """Draw the plots, write the page, and print where everything is."""
    require("evaluate", "matplotlib")
    runs = find_runs(folder)
    scalars = {name: read_scalars(run) for name, run in runs.items()}
    curves = {name: losses_of(tags) for name, tags in scalars.items()}
    if not any(curves.values()):
        raise InputError(f"{folder}: no run below it has logged a loss to TensorBoard: train one first")
    make_directory(folder / "plots")
    plots = [draw_losses(name, losses, folder / "plots") for name, losses in curves.items() if losses]
    file = folder / "results.json"
    results = read_results(file) if file.is_file() else None
    if results is not None:
        if results.about.candidates or results.about.classes:
            raise InputError(f"{file}: not results over a pool of documents: leave out --candidates or --classes")
        plots.append(draw_results(results, folder / "plots"))
    html = report_page(str(folder), results, folder / "rankings", scalars, runs)
    with whole_file(folder / PAGE) as opened:
        opened.write(html.encode())
    print("\n".join(summary(folder, plots)))


def summary(folder: Path, plots: Sequence[Path]) -> list[str]:
    """Return five lines: where the page, the table, the logs, the plots and the model are."""
    results, export = folder / "results.json", folder / "export"
    table = str(results) if results.is_file() else f"not made yet: python -m trainer.evaluate ... --out {results}"
    model = str(export) if export.is_dir() else f"not exported yet: python -m trainer.export RUN {export}"
    return [
        f"page         {folder / PAGE}",
        f"table        {table}",
        f"TensorBoard  tensorboard --logdir {folder}",
        f"plots        {folder / 'plots'}: {', '.join(path.name for path in plots)}",
        f"model        {model}",
    ]


def find_runs(folder: Path) -> dict[str, Path]:
    """Return every run folder below `folder` that has TensorBoard events, by the name that its plot gets, too.

    The parts of its path are joined by hyphens; a number follows where another run or plot has that name: of `a-b` and
    `a/b`, the second.
    """
    folders = {path.parent.parent for path in folder.rglob("tensorboard/events.out.tfevents.*")}
    runs: dict[str, Path] = {}
    for run in sorted(folders, key=lambda run: (len(run.parts), run)):
        name = "-".join(run.relative_to(folder).parts) or run.resolve().name
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        runs[next(name for name in names if name not in (*runs, RESULTS_PLOT))] = run
    return dict(sorted(runs.items(), key=lambda item: item[1]))


def losses_of(scalars: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return the loss terms of a run over optimizer steps, out of all that it logged."""
    return {tag.removeprefix("loss/"): curve for tag, curve in scalars.items() if tag.startswith("loss/")}


def draw_losses(name: str, losses: Mapping[str, Curve], folder: Path) -> Path:
    """Plot each loss term in a panel of its own, because units differ: thin as logged, thick its moving average."""
    figure, panels = new_figure(len(losses), width=5.0, height=3.4)
    for panel, color, (term, (steps, values)) in zip(panels, COLORS * len(losses), losses.items(), strict=False):
        title, unit = LOSSES.get(term, (term, "loss"))
        average = smooth(values)
        panel.plot(steps, values, color=color, linewidth=0.8, alpha=0.55, label="as logged")
        panel.plot(steps, average, color=color, linewidth=2.2, label="moving average")
        panel.annotate(f"{average[-1]:.3g}", (steps[-1], average[-1]), (5, 0), textcoords="offset points", va="center")
        panel.legend(frameon=False, loc="upper right")
        panel.set_title(title, loc="left")
        panel.set_xlabel("optimizer step")
        panel.set_ylabel(f"loss, {unit}")
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    figure.suptitle(f"{name}: training loss", x=0.01, ha="left", weight="bold")
    return save(figure, folder / f"{name}.png")


def draw_results(results: Results, folder: Path) -> Path:
    """Plot the table as labelled bars, with a panel for each metric because their scales differ."""
    systems = {title(name): system.metrics for name, system in results.systems.items()}
    colors = [GREY if name == "BM25" else COLORS[i % len(COLORS)] for i, name in enumerate(systems, start=-1)]
    figure, panels = new_figure(len(HEADINGS), width=3.4, height=1.7 + 0.42 * len(systems))
    rows = np.arange(len(systems))[::-1]
    for panel, (metric, heading) in zip(panels, HEADINGS.items(), strict=True):
        values = [system[metric] for system in systems.values()]
        bars = panel.barh(rows, values, height=0.68, color=colors)
        panel.bar_label(bars, [f"{value:.3f}" for value in values], padding=4)
        panel.set_title(heading, loc="left")
        panel.set_xlim(0, 1.25 * max(*values, 1e-3))  # room for the numbers
        panel.set_yticks(rows, systems if panel is panels[0] else [""] * len(systems))
        panel.tick_params(axis="y", length=0)
        panel.locator_params(axis="x", nbins=4)
        panel.set_xlabel("mean over queries")
    heading = f"{results.about.queries:,} queries over {results.about.corpus:,} documents"
    for pair in compared(results)[:1]:
        baseline, leader = map(title, pair.systems)
        heading += f"; {leader} against {baseline} on {HEADINGS[pair.metric]}: p = {pair.p_value:.2g}"
    figure.suptitle(heading, x=0.01, ha="left", weight="bold")
    return save(figure, folder / f"{RESULTS_PLOT}.png")
