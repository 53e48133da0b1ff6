"""What a folder of shards holds, in numbers: how much of what, how long, in which words; as JSON, a table or plots.

However many documents there are, only tables of counts are kept: one number for each length up to the longest, one for
each piece of the vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep.chunk import TokenDocument
from data_prep.errors import InputError, printable
from data_prep.files import make_directory, whole_file
from data_prep.manifest import Manifest, shards_folder
from data_prep.progress import track
from data_prep.shards import Shard

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUANTILES = {f"p{percent}": percent for percent in (5, 25, 50, 75, 95)}
REASONS = 20  # the most reasons for dropping that a table or a plot shows
LONGEST_REASON = 60  # characters shown
BLUE, GREY = "#0072B2", "#6e6e6e"


def run(directory: Path, as_json: bool, plots: Path | None) -> str:
    """What `python -m data_prep stats` prints: a table or JSON; draws PNGs into `plots` where that is given.

    Raises:
        InputError: as `collect` and `plot`.
    """
    if plots:
        _require_matplotlib()  # before the long part
    stats = collect(directory)
    drawn = plot(stats, plots) if plots else []
    if as_json:
        return json.dumps(stats, indent=1)
    return "\n\n".join([str(shards_folder(directory)), table(stats), "\n".join(map(str, drawn))]).rstrip()


def collect(directory: Path) -> dict[str, Any]:
    """Reads every shard of a folder, or of the `shards` in it, once; returns what JSON can hold.

    Returns:
        counts: documents, segments, tokens, bytes, shards, and dropped: {reason: number} as the manifest has it.
        lengths: of document_tokens and segment_tokens: min, p5, p25, p50, p75, p95 (the shortest length that at least
            so many percent do not exceed), max, mean, and histogram: [[low, high, number], ...] by doublings; all 0
            where there is none.
        vocabulary: size; used, the pieces that occur, and coverage, their share of the size; unknown_share, of all
            tokens; tokens_of_half, how many of the most frequent pieces make half of all tokens; and
            frequencies: [[rank, number], ...] of the 1st, 2nd, 4th, ... most frequent piece and the rarest.
        stages: as the manifest has them, else [].

    Raises:
        InputError: there are no shards, or one cannot be read or is not what the manifest lists.
    """
    manifest = Manifest.load(shards_folder(directory))
    documents, segments = np.zeros(1, np.int64), np.zeros(1, np.int64)
    pieces = np.zeros(manifest.tokenizer["vocab_size"], np.int64)
    for index in track(range(len(manifest.shards)), "stats", "shards"):
        shard = Shard.open(manifest, index)
        for number in range(len(shard)):
            chunk = shard.read(number)
            documents = _count(documents, np.array([sum(map(len, document)) for document in chunk], np.int64))
            segments = _count(
                segments, np.array([len(segment) for document in chunk for segment in document], np.int64)
            )
            pieces = _count(pieces, _ids(chunk))
    return {
        "counts": {
            "documents": int(documents.sum()),
            "segments": int(segments.sum()),
            "tokens": int(pieces.sum()),
            "bytes": manifest.total("bytes"),
            "shards": len(manifest.shards),
            "dropped": _dropped(manifest.source),
        },
        "lengths": {"document_tokens": _lengths(documents), "segment_tokens": _lengths(segments)},
        "vocabulary": _vocabulary(pieces, manifest.tokenizer["unk"]),
        "stages": manifest.source.get("stages", []),
    }


def _ids(documents: Sequence[TokenDocument]) -> np.ndarray:
    """All token ids, int64 [tokens]."""
    return np.concatenate([np.empty(0, np.int64), *(segment for document in documents for segment in document)])


def _count(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`counts`, int64 [largest value + 1], or a longer one in its place, after counting in some values."""
    more = np.bincount(values)
    if len(more) > len(counts):
        counts, more = more, counts
    counts[: len(more)] += more
    return counts


def _dropped(source: Mapping[str, Any]) -> dict[str, int]:
    """How much was dropped for which reason; `source` is free-form, so whatever else it says is passed over."""
    counts = source.get("counts")
    dropped = counts.get("dropped") if isinstance(counts, dict) else None
    if not isinstance(dropped, dict):
        return {}
    return {reason: number for reason, number in dropped.items() if type(number) is int and 0 <= number < 1 << 63}


def _lengths(counts: np.ndarray) -> dict[str, Any]:
    """Of counts[length]: exact quantiles, mean and histogram."""
    total = int(counts.sum())
    if not total:
        return {**dict.fromkeys(("min", *QUANTILES, "max"), 0), "mean": 0.0, "histogram": []}
    present = np.flatnonzero(counts)
    up_to = np.cumsum(counts)
    quantiles = {name: int(np.searchsorted(up_to, -(-percent * total // 100))) for name, percent in QUANTILES.items()}
    return {
        "min": int(present[0]),
        **quantiles,
        "max": int(present[-1]),
        "mean": float(counts @ np.arange(len(counts))) / total,
        "histogram": _doublings(counts),
    }


def _doublings(counts: np.ndarray) -> list[list[int]]:
    """[low, high, number] for the lengths 0, 1, 2 to 3, 4 to 7, ..., from the shortest to the longest that occur."""
    edges = [0, 1]
    while edges[-1] < len(counts):
        edges.append(2 * edges[-1])
    rows = [[low, high - 1, int(counts[low:high].sum())] for low, high in pairwise(edges)]
    filled = [place for place, row in enumerate(rows) if row[2]]
    return rows[filled[0] : filled[-1] + 1]


def _vocabulary(counts: np.ndarray, unknown: int) -> dict[str, Any]:
    """Of counts[id], int64 [vocabulary size]."""
    ranked = np.sort(counts[counts > 0])[::-1]
    total = int(ranked.sum())
    ranks = sorted({*(1 << power for power in range(len(ranked).bit_length())), len(ranked)} - {0})
    return {
        "size": len(counts),
        "used": len(ranked),
        "coverage": len(ranked) / len(counts),
        "unknown_share": int(counts[unknown]) / max(total, 1),
        "tokens_of_half": int(np.searchsorted(2 * np.cumsum(ranked), total)) + 1 if total else 0,
        "frequencies": [[rank, int(ranked[rank - 1])] for rank in ranks],
    }


def table(stats: Mapping[str, Any]) -> str:
    """The numbers as aligned text: totals, lengths, what was dropped and why, and the vocabulary."""
    counts, vocabulary = stats["counts"], stats["vocabulary"]
    totals = [[name, f"{counts[name]:,}"] for name in ("documents", "segments", "tokens", "bytes", "shards")]
    columns = ("min", *QUANTILES, "max")
    lengths = [["tokens of a", *columns, "mean"]]
    for name, of in stats["lengths"].items():
        lengths.append([name.removesuffix("_tokens"), *(f"{of[column]:,}" for column in columns), f"{of['mean']:,.1f}"])
    pieces = [
        ["vocabulary", f"{vocabulary['size']:,}", ""],
        ["  pieces that occur", f"{vocabulary['used']:,}", _percent(vocabulary["coverage"])],
        ["  pieces of half the tokens", f"{vocabulary['tokens_of_half']:,}", ""],
        ["  unknown tokens", "", _percent(vocabulary["unknown_share"])],
    ]
    return "\n\n".join(map(_aligned, (totals, lengths, _drop_rows(counts["dropped"]), pieces)))


def _drop_rows(dropped: Mapping[str, int]) -> list[list[str]]:
    """The commonest reasons, each with its share of all that was dropped."""
    total = sum(dropped.values())
    rows = [["dropped", f"{total:,}", ""]]
    rows += [[f"  {reason}", f"{number:,}", _percent(number / max(total, 1))] for reason, number in _commonest(dropped)]
    if len(dropped) > REASONS:
        rows.append([f"  and for {len(dropped) - REASONS:,} more reasons", "", ""])
    return rows


def _commonest(dropped: Mapping[str, int]) -> list[tuple[str, int]]:
    """At most REASONS reasons, fit to be shown, from the commonest on."""
    ranked = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return [(printable(reason[:LONGEST_REASON]), number) for reason, number in ranked[:REASONS]]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def plot(stats: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draws the lengths, the vocabulary and, where anything was, what was dropped; returns the PNGs in `folder`.

    Raises:
        InputError: matplotlib is not installed, or `folder` cannot be written.
    """
    _require_matplotlib()
    lengths = stats["lengths"]
    figures = {
        "document-lengths": _draw_lengths("document", lengths["document_tokens"]),
        "segment-lengths": _draw_lengths("segment", lengths["segment_tokens"]),
        "vocabulary": _draw_vocabulary(stats["vocabulary"]),
    }
    if any(stats["counts"]["dropped"].values()):
        figures["dropped"] = _draw_dropped(stats["counts"]["dropped"])
    make_directory(folder)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        with whole_file(paths[-1]) as file:
            figure.savefig(file, format="png", dpi=150)
    return paths


def _require_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise InputError("plots: matplotlib is not installed; run: pip install 'deepsiam[evaluate]'")


def _draw_lengths(what: str, lengths: Mapping[str, Any]) -> Figure:
    figure, axes = _figure(f"{what}s: median {lengths['p50']:,}, mean {lengths['mean']:,.1f}, max {lengths['max']:,}")
    rows = lengths["histogram"]
    labels = [f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high, _ in rows]
    axes.bar(range(len(rows)), [number for *_, number in rows], color=BLUE)
    axes.set_xticks(range(len(rows)), labels, rotation=45, ha="right")
    axes.set_xlabel(f"tokens of a {what}")
    axes.set_ylabel(f"{what}s")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return figure


def _draw_vocabulary(vocabulary: Mapping[str, Any]) -> Figure:
    """Zipf's plot: the number of each piece over its rank."""
    used, size, half = (vocabulary[name] for name in ("used", "size", "tokens_of_half"))
    figure, axes = _figure(f"vocabulary: {used:,} of {size:,} pieces occur, {half:,} make half of all tokens")
    if vocabulary["frequencies"]:
        ranks, numbers = zip(*vocabulary["frequencies"], strict=True)
        axes.loglog(ranks, numbers, color=BLUE, marker="o", markersize=4)
        axes.axvline(half, color=GREY, linestyle="--", linewidth=1)
    axes.set_xlabel("rank of the piece")
    axes.set_ylabel("tokens")
    return figure


def _draw_dropped(dropped: Mapping[str, int]) -> Figure:
    rows = _commonest(dropped)
    figure, axes = _figure(f"dropped: {sum(dropped.values()):,}", height=1.2 + 0.3 * len(rows))
    bars = axes.barh(range(len(rows)), [number for _, number in rows], color=BLUE)
    axes.bar_label(bars, [f"{number:,}" for _, number in rows], padding=3)
    axes.set_yticks(range(len(rows)), [reason.replace("$", r"\$") for reason, _ in rows])  # a pair of $ is a formula
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.margins(x=0.15)
    return figure


def _figure(title: str, height: float = 3.6) -> tuple[Figure, Axes]:
    """Plain axes, 7 x `height` inches, without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
