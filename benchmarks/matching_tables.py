"""The tables of the matching models' results: means and p-values, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.matching_collections import Study
from trainer.evaluation.metrics import paired_permutation_test

Results = dict[tuple[str, str, str, str], list[list[float]]]  # (collection, metric, model, start): [seeds, queries]
BASELINE = {"pool": "BM25", "lists": "BM25", "classes": "the most frequent class"}
ROUNDS = 10_000


def report(results: Sequence[tuple[Study, Results]], starts: Sequence[str]) -> str:
    """Write a table for every collection, with the p-values below it."""
    parts = []
    for study, found in results:
        for name in dict.fromkeys(key[0] for key in found):
            parts.append(f"{name}\n\n{table(study, found, name, starts)}\n\n{p_values(study, found, name, starts)}")
    return "\n\n".join(parts)


def table(study: Study, found: Results, name: str, starts: Sequence[str]) -> str:
    """Write the means over seeds and queries, and in brackets each seed's mean of the first metric."""
    head = ["model", *(f"{metric}, {start}" for start in starts for metric in study.metrics)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for model in study.models:
        cells = [
            _cell(found[name, metric, model, start], metric == study.metrics[0])
            for start in starts
            for metric in study.metrics
        ]
        lines.append(f"| {' | '.join([model, *cells])} |")
    plain = [f"{np.mean(found[name, metric, '', '']):.4f}" for metric in study.metrics] * len(starts)
    return "\n".join([*lines, f"| {' | '.join([BASELINE[study.kind], *plain])} |"])


def _cell(values: Sequence[Sequence[float]], by_seed: bool) -> str:
    seeds = ", ".join(f"{np.mean(of_seed):.4f}" for of_seed in values)
    return f"{np.mean(values):.4f}" + (f" ({seeds})" if by_seed and len(values) > 1 else "")


def p_values(study: Study, found: Results, name: str, starts: Sequence[str]) -> str:
    """Write p-values of the first metric: between neighbours in the claimed order, and between each model's starts."""
    metric, models = study.metrics[0], list(study.models)

    def mean(model: str, start: str) -> np.ndarray:
        return np.array(found[name, metric, model, start]).mean(0)

    lines = []
    for start in starts:
        for model, better in zip(models, models[1:], strict=False):
            lines.append(_line(f"from {start}: {better}", mean(better, start), model, mean(model, start)))
    for model in models:
        for start, later in zip(starts, starts[1:], strict=False):
            lines.append(_line(f"{model}: from {later}", mean(model, later), start, mean(model, start)))
    return "\n".join(lines)


def _line(what: str, values: np.ndarray, other: str, others: np.ndarray) -> str:
    p = paired_permutation_test(values, others, ROUNDS)
    return f"- {what} {values.mean() - others.mean():+.4f} against {other}, p = {p:.4f}"
