"""Draw the numbers of stats.py as PNGs: lengths, vocabulary, dropped records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.figures import COLORS, GREY, new_figure, save
from deepsiam.data_prep.common.files import make_directory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE = COLORS[0]


def draw(stats: Mapping[str, Any], dropped: Sequence[tuple[str, int]], folder: Path) -> list[Path]:
    """Draw the numbers of `stats.collect` and the reasons of dropped records, if any; return the PNGs in `folder`."""
    require("evaluate", "matplotlib", feature="--plots")
    lengths = stats["lengths"]
    figures = {
        "document-lengths": _draw_lengths("document", lengths["document_tokens"]),
        "segment-lengths": _draw_lengths("segment", lengths["segment_tokens"]),
        "vocabulary": _draw_vocabulary(stats["vocabulary"]),
    }
    if any(number for _, number in dropped):
        figures["dropped"] = _draw_dropped(dropped, sum(stats["counts"]["dropped"].values()))
    make_directory(folder)
    return [save(figure, folder / f"{name}.png") for name, figure in figures.items()]


def _draw_lengths(unit: str, lengths: Mapping[str, Any]) -> Figure:
    figure, axes = _figure(f"{unit}s: median {lengths['p50']:,}, mean {lengths['mean']:,.1f}, max {lengths['max']:,}")
    rows = lengths["histogram"]
    labels = [f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high, _ in rows]
    axes.bar(range(len(rows)), [number for *_, number in rows], color=BLUE)
    axes.set_xticks(range(len(rows)), labels, rotation=45, ha="right")
    axes.set_xlabel(f"tokens of a {unit}")
    axes.set_ylabel(f"{unit}s")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return figure


def _draw_vocabulary(vocabulary: Mapping[str, Any]) -> Figure:
    """Draw Zipf's plot: the number of each piece over its rank."""
    used_pieces, size, half = (vocabulary[name] for name in ("used", "size", "tokens_of_half"))
    figure, axes = _figure(f"vocabulary: {used_pieces:,} of {size:,} pieces occur, {half:,} make half of all tokens")
    if vocabulary["frequencies"]:
        ranks, numbers = zip(*vocabulary["frequencies"], strict=True)
        axes.loglog(ranks, numbers, color=BLUE, marker="o", markersize=4)
        axes.axvline(half, color=GREY, linestyle="--", linewidth=1)
    axes.set_xlabel("rank of the piece")
    axes.set_ylabel("tokens")
    return figure


def _draw_dropped(rows: Sequence[tuple[str, int]], total: int) -> Figure:
    figure, axes = _figure(f"dropped: {total:,}", height=1.2 + 0.3 * len(rows))
    bars = axes.barh(range(len(rows)), [number for _, number in rows], color=BLUE)
    axes.bar_label(bars, [f"{number:,}" for _, number in rows], padding=3)
    axes.set_yticks(range(len(rows)), [reason.replace("$", r"\$") for reason, _ in rows])  # a pair of $ is a formula
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.margins(x=0.15)
    return figure


def _figure(title: str, height: float = 3.6) -> tuple[Figure, Axes]:
    figure, (axes,) = new_figure(1, 7, height)
    axes.set_title(title, loc="left")
    return figure, axes
