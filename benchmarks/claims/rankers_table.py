"""The table of all kinds of rankers: alone and fused with BM25, from several starts side by side, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from deepsiam.trainer.ranking.evaluation.results_file import Results

BASE, FUSED = "bm25", "{}_bm25"  # the system that p is against, and the name of a system's fusion with it


def table(starts: Mapping[str, Sequence[Results]], titles: Mapping[str, str]) -> list[str]:
    """Return the lines of the table.

    Args:
        starts: the results of each start, a file for each seed, all of the same systems
        titles: the titles of the rows by the name of their system, BM25's first
    """
    heads = ["system", "forward passes a query"]
    for start in starts:
        heads += [f"from {start}", "fused with BM25"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    shown = next(iter(starts.values()))[0]
    for name, title in titles.items():
        passes = shown.systems[name].passes
        cells = [title, "" if passes is None else f"{passes:,.0f}"]
        cells += [_cell(seeds, one) for seeds in starts.values() for one in (name, FUSED.format(name))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(seeds: Sequence[Results], name: str) -> str:
    """Return a system's mean with its standard deviation over the seeds, and the largest of their p-values."""
    if name not in seeds[0].systems:
        return ""
    values = [results.systems[name].metrics[results.about.tested] for results in seeds]
    p_values = [pair.p_value for results in seeds for pair in results.pairs if pair.systems == [BASE, name]]
    if not p_values:
        return f"{mean(values):.4f}"
    if len(seeds) == 1:
        return f"{values[0]:.4f} (p = {p_values[0]:.4f})"
    return f"{mean(values):.4f} ± {stdev(values):.4f} (p ≤ {max(p_values):.4f})"
