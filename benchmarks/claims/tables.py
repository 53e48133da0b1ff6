"""The tables of the claims benchmark: means, intervals and p-values, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.claims.tunings import RATES, Tuning, Values
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.significance import bootstrap_interval

AGAINST = {"mlm": "the masked LM", "random": "random weights"}  # starts to compare all others with
ROUNDS = 10_000


@dataclass(frozen=True)
class Row:
    """The measurements of a start: MRR@10 by seed, and on the development splits by fine-tuning and learning rate."""

    seeds: Sequence[Values]  # by collection
    dev: Mapping[str, Mapping[float, float]]

    @property
    def rates(self) -> dict[str, float]:
        """Return the learning rate that is best on the development split, by fine-tuning."""
        return {tuning: best(tried) for tuning, tried in self.dev.items()}

    def values(self, collection: str) -> np.ndarray:
        """Return MRR@10, fp64 [seeds, queries]."""
        return np.array([values[collection] for values in self.seeds])


def best(tried: Mapping[float, float]) -> float:
    """Return the learning rate with the largest mean, the first of ties."""
    return max(tried, key=lambda rate: tried[rate])


def table(rows: Mapping[str, Row], collection: str, tuned: Sequence[str], bm25: Mapping[str, Sequence[float]]) -> str:
    """Write the table of a collection: a row for each start, the best first, and one for each text that BM25 reads.

    The rates in the table are those of the fine-tunings named in `tuned`.
    """
    measured = {name: row.values(collection) for name, row in rows.items()}
    head = ["start", "rate", "MRR@10", "95 % interval, bootstrap over queries", "by seed"]
    head += [f"p against {name}" for name in AGAINST.values()]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, values in sorted(measured.items(), key=lambda item: -item[1].mean()):
        low, high = bootstrap_interval(values.mean(0))
        cells = [
            name,
            ", ".join(f"{rows[name].rates[tuning]:g}" for tuning in tuned),
            f"{values.mean():.4f}",
            f"{low:.4f} to {high:.4f}",
            ", ".join(f"{value:.4f}" for value in values.mean(1)),
            *(_p_value(measured, name, against) for against in AGAINST),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for text, ranked in bm25.items():
        lines.append(f"| BM25, {text} | | {np.mean(ranked):.4f} |{' |' * (len(head) - 3)}")
    return "\n".join(lines)


def _p_value(measured: Mapping[str, np.ndarray], name: str, against: str) -> str:
    """Return the p-value between two starts, each query's values averaged over the seeds; "" if there is none."""
    if name == against or against not in measured:
        return ""
    return f"{paired_permutation_test(measured[name].mean(0), measured[against].mean(0), ROUNDS):.4f}"


def rates_table(rows: Mapping[str, Row]) -> str:
    """Write MRR@10 on the development splits by start, fine-tuning and rate; the chosen rate is bold."""
    names = list(next(iter(rows.values())).dev)
    lines = [f"| start | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for name, row in rows.items():
        cells = []
        for tuning in names:
            chosen = row.rates[tuning]
            tried = {rate: f"{value:.4f}" for rate, value in row.dev[tuning].items()}
            cells.append(" / ".join(f"**{value}**" if rate == chosen else value for rate, value in tried.items()))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(rows: Mapping[str, Row], tunings: Sequence[Tuning], bm25: Mapping[str, Values]) -> str:
    """Write a table for each that the fine-tunings name, and one of the learning rates."""
    parts = []
    for name in dict.fromkeys(name for tuning in tunings for name in tuning.ranked):
        tuned = [tuning.name for tuning in tunings if name in tuning.ranked]
        ranked = {text: values[name] for text, values in bm25.items()}
        queries = len(next(iter(ranked.values())))
        parts.append(f"{name}, {queries:,} queries\n\n{table(rows, name, tuned, ranked)}")
    rates = " / ".join(f"{rate:g}" for rate in RATES)
    parts.append(f"MRR@10 on the development splits with the rates {rates}\n\n{rates_table(rows)}")
    return "\n\n".join(parts)
