"""Metrics of rankings and of classes, averaged over queries or pairs, and a significance test for two systems."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.registry import Registry

HEADINGS = {
    "mrr@10": "MRR@10",
    "ndcg@10": "nDCG@10",
    "recall@100": "Recall@100",
}  # key: title of a column
LIST_HEADINGS = {"r@1": "R@1", "r@2": "R@2", "r@5": "R@5", "mrr": "MRR", "map": "MAP"}  # of candidate lists
MIND = ("auc", "mrr_all", "ndcg@5", "ndcg@10")  # more metrics of candidate lists: those of papers on MIND
CLASS_HEADINGS = {"accuracy": "accuracy"}
MAX_DEPTH = 10_000  # the longest ranking that a metric may read
DEPTH = 100  # the longest ranking that the metrics of HEADINGS read
ROUNDS = 10_000  # of the permutation test
FLIPS = 2**22  # drawn at once: 16 bytes each


class RankingMetric(NamedTuple):
    """A metric of the first K documents of a query's ranking.

    `measure` is its name in ir_measures, or a function of the grades of these documents, fp64 [n], n <= K, best first,
    0 where there is no judgement, and of all grades of the query, fp64 [J], at least one above 0; none is below 0.
    """

    title: str
    measure: str | Callable[[np.ndarray, np.ndarray], float]


METRICS: Registry[RankingMetric] = Registry(
    "metric",
    {
        "mrr": RankingMetric("MRR", "RR"),
        "ndcg": RankingMetric("nDCG", "nDCG"),
        "recall": RankingMetric("Recall", "R"),
        "map": RankingMetric("MAP", "AP"),
    },
)


@dataclass(frozen=True)
class Metrics:
    """Each metric's values for all queries, groups or pairs, fp64 [Q] in the order of the judgements."""

    values: dict[str, np.ndarray]

    @property
    def means(self) -> dict[str, float]:
        """Each metric's mean over all queries, groups or pairs."""
        return {name: float(values.mean()) for name, values in self.values.items()}


class Metric(NamedTuple):
    """A metric of the first K documents of a ranking."""

    kind: str  # a key of METRICS
    depth: int

    @classmethod
    def of(cls, name: str) -> Metric:
        """Parse a name such as `mrr@100`; raise ValueError where it is not a metric."""
        kind, _, depth = name.partition("@")
        if kind not in METRICS or not re.fullmatch("[1-9][0-9]{0,4}", depth) or int(depth) > MAX_DEPTH:
            kinds = ", ".join(f"{kind}@K" for kind in METRICS)
            raise ValueError(f"{name!r} is not a metric: write {kinds}, with K from 1 to {MAX_DEPTH:,}")
        return cls(kind, int(depth))

    @property
    def title(self) -> str:
        """The title of the metric's column."""
        return f"{METRICS[self.kind].title}@{self.depth}"

    @property
    def measure(self) -> str | Callable[[np.ndarray, np.ndarray], float]:
        """The metric's name in ir_measures, or its function of the first `depth` documents."""
        measure = METRICS[self.kind].measure
        return f"{measure}@{self.depth}" if isinstance(measure, str) else measure


def more_metrics(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the metrics that HEADINGS lacks, each once; raise InputError, naming `where` they are given."""
    for name in names:
        try:
            Metric.of(name)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
    return tuple(name for name in dict.fromkeys(names) if name not in HEADINGS)


def measure(
    qrels: Mapping[str, Mapping[str, int]], ranked: Mapping[str, Sequence[str]], extra_metrics: Sequence[str] = ()
) -> Metrics:
    """Compute MRR@10, nDCG@10 (gain = grade) and Recall@100 by ir_measures; a grade above 0 is relevant.

    Grades below 0 count as 0, as in trec_eval: pytrec_eval crashes where a query has no other grades. The evaluators
    behind ir_measures break ties in different ways, so their scores are the negated ranks, without ties. They also skip
    queries that have no ranking or no relevant document; here those count as 0.

    Args:
        qrels: query id -> document id -> grade; at least one query.
        ranked: query id -> ids of documents, best first, each once; queries without judgements are ignored.
        extra_metrics: names of more metrics, which `Metric.of` parses.
    """
    import ir_measures

    judgements = [ir_measures.Qrel(q, d, max(grade, 0)) for q, judged in qrels.items() for d, grade in judged.items()]
    run = [
        ir_measures.ScoredDoc(query, document, float(-rank))
        for query, documents in ranked.items()
        for rank, document in enumerate(documents)
    ]
    row = {query: i for i, query in enumerate(qrels)}
    metrics = {name: Metric.of(name) for name in (*HEADINGS, *extra_metrics)}
    theirs = {name: metric.measure for name, metric in metrics.items() if isinstance(metric.measure, str)}
    names = {ir_measures.parse_measure(measure): name for name, measure in theirs.items()}
    values = {name: np.zeros(len(qrels)) for name in metrics}
    for result in ir_measures.iter_calc(list(names), judgements, run):
        values[names[result.measure]][row[result.query_id]] = result.value
    for name in metrics.keys() - theirs.keys():
        for query, judged in qrels.items():
            values[name][row[query]] = _measure_query(metrics[name], judged, ranked.get(query, ()))
    return Metrics(values)


def _measure_query(metric: Metric, judged: Mapping[str, int], ranked: Sequence[str]) -> float:
    """Compute a metric that is a function, of one query; 0 where it has no ranking or no relevant document."""
    grades = np.maximum([*judged.values()], 0.0)
    if not len(ranked) or not grades.any():
        return 0.0
    assert callable(metric.measure)
    return metric.measure(np.maximum([judged.get(i, 0) for i in ranked[: metric.depth]], 0.0), grades)


def measure_lists(ranked: Sequence[np.ndarray], elsewhere: Sequence[np.ndarray]) -> Metrics:
    """Compute R@1, R@2, R@5, MRR, MAP and nDCG of candidate lists, as trec_eval does, and the area under the ROC curve.

    Recall at k is the share of a list's relevant documents that are among the first k; with one relevant document it
    is 0 or 1. MRR reads the first relevant candidate; `mrr_all` is the mean of 1 / rank over all relevant ones, which
    MIND's own script calls MRR. The area is the share of pairs of a relevant and another document that are ranked in
    this order; 1 where there are no such pairs. The gain of nDCG is the grade; below 0 it is 0.

    Args:
        ranked: the grades of each list's candidates, best first, fp32 [n]; above 0 is relevant.
        elsewhere: the grades of the relevant documents that are not among them, fp32 [m]: never found. Each list has at
            least one relevant document, and one candidate.
    """
    values = {name: np.zeros(len(ranked)) for name in (*LIST_HEADINGS, *MIND)}
    for row, (grades, missed) in enumerate(zip(ranked, elsewhere, strict=True)):
        ranks = np.flatnonzero(grades > 0) + 1
        relevant, negatives = len(ranks) + len(missed), len(grades) - len(ranks)
        for k in (1, 2, 5):
            values[f"r@{k}"][row] = (ranks <= k).sum() / relevant
        values["mrr"][row] = 1 / ranks[0] if len(ranks) else 0.0
        values["mrr_all"][row] = (1 / ranks).sum() / relevant
        values["map"][row] = (np.arange(1, len(ranks) + 1) / ranks).sum() / relevant
        others_above = (ranks - np.arange(1, len(ranks) + 1)).sum() + len(missed) * negatives
        values["auc"][row] = 1 - others_above / relevant / negatives if negatives else 1.0
        gains = grades[ranks - 1].astype(np.float64)
        ideal_gains = np.sort(np.concatenate([gains, missed]))[::-1]
        for k in (5, 10):
            discounts = 1 / np.log2(1 + np.arange(1, k + 1))
            within = ranks <= k
            values[f"ndcg@{k}"][row] = (gains[within] * discounts[ranks[within] - 1]).sum()
            values[f"ndcg@{k}"][row] /= (ideal_gains[:k] * discounts[: len(ideal_gains)]).sum()
    return Metrics(values)


def paired_permutation_test(a: np.ndarray, b: np.ndarray, rounds: int = ROUNDS, seed: int = 1) -> float:
    """Compute the two-sided p-value of the mean difference of paired values fp64 [Q], by flipping random pairs.

    p = (1 + rounds at least as extreme as the observed difference) / (1 + rounds), which is never 0 (Phipson and Smyth,
    2010). The same seed draws the same flips.
    """
    difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    return float(permutation_tests(difference[None], rounds, seed)[0])


def permutation_tests(differences: np.ndarray, rounds: int = ROUNDS, seed: int = 1) -> np.ndarray:
    """Compute the p-values, fp64 [P], of `paired_permutation_test` for differences fp64 [P, Q], by the same flips."""
    differences = differences[:, differences.any(axis=0)]  # flipping a 0 changes nothing
    rng = np.random.Generator(np.random.Philox(key=seed))
    observed = abs(differences.sum(axis=1))
    exceedances = np.zeros(len(differences), np.int64)
    block = max(1, min(1000, FLIPS // max(1, differences.shape[1])))
    for start in range(0, rounds, block):
        signs = rng.choice([-1.0, 1.0], size=(min(block, rounds - start), differences.shape[1]))
        sums = abs(signs @ differences.T)
        exceedances += (sums >= observed * (1 - 1e-9)).sum(axis=0)  # the last bits depend on the order of the sum
    return (exceedances + 1) / (rounds + 1)
