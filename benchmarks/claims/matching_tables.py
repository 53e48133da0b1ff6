"""The tables of the matching models' results: means and p-values, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.claims.matching_collections import Study
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test

Results = dict[tuple[str, str, str, str], list[list[float]]]  # (title, metric, model, start): [seeds, queries]
START = {"random": "random weights", "mlm": "masked LM", "seed": "SEED"}
BASELINE = {"pool": "BM25", "lists": "BM25", "classes": "the most frequent class"}
ROUNDS = 10_000


def report(results: Sequence[tuple[Study, Results]], starts: Sequence[str]) -> str:
    """Write a table for every collection, with the p-values below it."""
    parts = []
    for study, found in results:
        for title in dict.fromkeys(key[0] for key in found):
            parts.append(f"{table(study, found, title, starts)}\n\n{p_values(study, found, title, starts)}")
    return "\n\n".join(parts)


def table(study: Study, found: Results, title: str, starts: Sequence[str]) -> str:
    """Write the first metric's mean and its standard deviation over the seeds, and in brackets the other's mean."""
    lines = [f"| {' | '.join([title, *(START[start] for start in starts)])} |", "|---" * (1 + len(starts)) + "|"]
    for model in study.models:
        cells = [_cell([found[title, metric, model, start] for metric in study.metrics]) for start in starts]
        lines.append(f"| {' | '.join([model, *cells])} |")
    plain = _cell([found[title, metric, "", ""] for metric in study.metrics])
    return "\n".join([*lines, f"| {BASELINE[study.kind]} | {plain} |{' |' * (len(starts) - 1)}"])


def _cell(metrics: Sequence[Sequence[Sequence[float]]]) -> str:
    first, *others = [np.mean(of_seeds, axis=1) for of_seeds in metrics]  # of every seed
    spread = f" ± {first.std(ddof=1):.4f}" if len(first) > 1 else ""
    return f"{first.mean():.4f}{spread}" + "".join(f" ({other.mean():.4f})" for other in others)


def p_values(study: Study, found: Results, title: str, starts: Sequence[str]) -> str:
    """Write p-values of the first metric: between neighbours in the claimed order, and between each model's starts."""
    metric, models = study.metrics[0], list(study.models)

    def mean(model: str, start: str) -> np.ndarray:
        return np.array(found[title, metric, model, start]).mean(0)

    lines = []
    for start in starts:
        for model, better in zip(models, models[1:], strict=False):
            lines.append(_line(f"from {START[start]}: {better}", mean(better, start), model, mean(model, start)))
    for model in models:
        for start, later in zip(starts, starts[1:], strict=False):
            lines.append(_line(f"{model}: from {START[later]}", mean(model, later), START[start], mean(model, start)))
    return "\n".join(lines)


def _line(what: str, values: np.ndarray, other: str, others: np.ndarray) -> str:
    p = paired_permutation_test(values, others, ROUNDS)
    return f"- {what} {values.mean() - others.mean():+.4f} against {other}, p = {p:.4f}"
