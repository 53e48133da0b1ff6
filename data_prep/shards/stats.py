"""Count what a folder of shards holds: documents, lengths, vocabulary; as JSON or a table.

Memory does not depend on the number of documents: only a count for each length up to the longest and one for each piece
of the vocabulary are kept.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import printable
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.common.provenance import stages_of
from deepsiam.data_prep.shards import plots
from deepsiam.data_prep.shards.manifest import Manifest, shards_folder
from deepsiam.data_prep.shards.reader import Shard

QUANTILES = {f"p{percent}": percent for percent in (5, 25, 50, 75, 95)}
REASONS = 20  # the most reasons for dropping that a table or a plot lists
LONGEST_REASON = 60  # characters


def run(directory: Path, as_json: bool, folder: Path | None) -> str:
    """Return what `python -m data_prep stats` prints, a table or JSON; draw PNGs into `folder`."""
    if folder:
        require("evaluate", "matplotlib", feature="--plots")  # before the long part
    stats = collect(directory)
    plot_files = plots.draw(stats, commonest(stats["counts"]["dropped"]), folder) if folder else []
    if as_json:
        return json.dumps(stats, indent=1)
    return "\n\n".join([str(shards_folder(directory)), table(stats), "\n".join(map(str, plot_files))]).rstrip()


def collect(directory: Path) -> dict[str, Any]:
    """Read every shard of a folder, or of the `shards` in it, once; return what JSON can hold.

    Returns:
        counts: documents, segments, tokens, bytes, shards, and dropped: {reason: number} from the manifest.
        lengths: of document_tokens, segment_tokens and, for pairs, query_tokens: min, p5, p25, p50, p75, p95 (the
            shortest length that at least this percentage does not exceed), max, mean, and histogram: [[low, high,
            number], ...] by doublings; all 0 for no documents or segments.
        vocabulary: size; used, the pieces that occur, and coverage, their share of the size; unknown_share, of all
            tokens; tokens_of_half, how many of the most frequent pieces make half of all tokens; and
            frequencies: [[rank, number], ...] of the 1st, 2nd, 4th, ... most frequent piece and the rarest.
        stages: from the manifest, else [].
    """
    manifest = Manifest.load(shards_folder(directory))
    documents, segments, queries = (np.zeros(1, np.int64) for _ in range(3))
    pairs = manifest.source.get("pairs") is True
    pieces = np.zeros(manifest.tokenizer["vocab_size"], np.int64)
    for index in track(range(len(manifest.shards)), "stats", "shards"):
        for chunk in Shard.open(manifest, index).chunks():
            texts = [document.segments for document in chunk]
            documents = _count(documents, [sum(map(len, text)) for text in texts])
            segments = _count(segments, [len(segment) for text in texts for segment in text])
            queries = _count(queries, [len(text[0]) for text in texts if pairs and len(text)])
            pieces = _count(pieces, np.concatenate([np.empty(0, np.int64), *chain.from_iterable(texts)]))
    return {
        "counts": {
            "documents": int(documents.sum()),
            "segments": int(segments.sum()),
            "tokens": int(pieces.sum()),
            "bytes": manifest.total("bytes"),
            "shards": len(manifest.shards),
            "dropped": _dropped(manifest.source),
        },
        "lengths": {
            "document_tokens": _lengths(documents),
            "segment_tokens": _lengths(segments),
            **({"query_tokens": _lengths(queries)} if pairs else {}),
        },
        "vocabulary": _vocabulary(pieces, manifest.tokenizer["unk"]),
        "stages": stages_of(manifest.source),
    }


def _count(counts: np.ndarray, values: Sequence[int] | np.ndarray) -> np.ndarray:
    """Add values to counts[value], int64 [largest value + 1]; return them, or a longer array in their place."""
    addend = np.bincount(np.asarray(values, np.int64))
    if len(addend) > len(counts):
        counts, addend = addend, counts
    counts[: len(addend)] += addend
    return counts


def _dropped(source: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of dropped records by reason; `source` is free-form, so anything unexpected is ignored."""
    counts = source.get("counts")
    dropped = counts.get("dropped") if isinstance(counts, dict) else None
    if not isinstance(dropped, dict):
        return {}
    return {reason: number for reason, number in dropped.items() if type(number) is int and 0 <= number < 1 << 63}


def _lengths(counts: np.ndarray) -> dict[str, Any]:
    """Return exact quantiles, mean and histogram of counts[length]."""
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
    """Return [low, high, number] for lengths of 0, 1, 2 to 3, 4 to 7, ..., between the shortest and the longest."""
    edges = [0, 1]
    while edges[-1] < len(counts):
        edges.append(2 * edges[-1])
    rows = [[low, high - 1, int(counts[low:high].sum())] for low, high in pairwise(edges)]
    filled = [place for place, row in enumerate(rows) if row[2]]
    return rows[filled[0] : filled[-1] + 1]


def _vocabulary(counts: np.ndarray, unknown: int | None) -> dict[str, Any]:
    """Return the numbers of counts[id], int64 [vocabulary size]."""
    ranked = np.sort(counts[counts > 0])[::-1]
    total = int(ranked.sum())
    ranks = sorted({*(1 << power for power in range(len(ranked).bit_length())), len(ranked)} - {0})
    return {
        "size": len(counts),
        "used": len(ranked),
        "coverage": len(ranked) / len(counts),
        "unknown_share": 0.0 if unknown is None else int(counts[unknown]) / max(total, 1),
        "tokens_of_half": int(np.searchsorted(2 * np.cumsum(ranked), total)) + 1 if total else 0,
        "frequencies": [[rank, int(ranked[rank - 1])] for rank in ranks],
    }


def table(stats: Mapping[str, Any]) -> str:
    """Return the numbers as aligned text: totals, lengths, dropped records by reason, vocabulary."""
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
    """Return the commonest reasons, each with its share of all dropped records."""
    total = sum(dropped.values())
    rows = [["dropped", f"{total:,}", ""]]
    rows += [[f"  {reason}", f"{number:,}", _percent(number / max(total, 1))] for reason, number in commonest(dropped)]
    if len(dropped) > REASONS:
        rows.append([f"  and for {len(dropped) - REASONS:,} more reasons", "", ""])
    return rows


def commonest(dropped: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return at most REASONS reasons, safe to print, the commonest first."""
    ranked = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return [(printable(reason[:LONGEST_REASON]), number) for reason, number in ranked[:REASONS]]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Align the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
