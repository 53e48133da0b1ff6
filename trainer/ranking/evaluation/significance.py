"""Every pair of systems: the difference of means, its bootstrap interval, a p-value corrected for many pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated

import numpy as np
from pydantic import Field

from deepsiam.data_prep.common.json_file import Record
from deepsiam.trainer.ranking.evaluation.metrics import ROUNDS, Metrics, permutation_tests

LEVEL = 0.95  # of the intervals
DRAWN = 2**17  # values of samples at once: 16 bytes each
FLIPS_OF_PAIR = 40  # at least: so the smallest p, corrected by Holm, is 1 / 40


class SystemPair(Record):
    """How the second of two systems differs from the first."""

    systems: Annotated[list[str], Field(min_length=2, max_length=2)]
    metric: str
    difference: float
    interval: Annotated[list[float], Field(min_length=2, max_length=2)]
    p_value: float
    p_value_holm: float


def every_pair(metrics: Mapping[str, Metrics], systems: Sequence[str], metric: str) -> list[SystemPair]:
    """Compare each system with each later one by a metric of the same queries.

    The difference is the later system's mean minus the earlier one's. The interval is a percentile bootstrap over
    queries (Efron and Tibshirani, 1993, chapter 13). The p-value is from the paired permutation test, given uncorrected
    and corrected for the number of pairs by Holm's method (1979).
    """
    pairs = list(combinations(systems, 2))
    differences = [metrics[b].values[metric] - metrics[a].values[metric] for a, b in pairs]
    p_values = _p_values(differences)
    return [
        SystemPair(
            systems=list(pair),
            metric=metric,
            difference=float(difference.mean()),
            interval=bootstrap_interval(difference),
            p_value=p_value,
            p_value_holm=corrected,
        )
        for pair, difference, p_value, corrected in zip(pairs, differences, p_values, holm(p_values), strict=True)
    ]


def flips_for(pairs: int) -> int:
    """Return the rounds of the permutation test where so many pairs are compared."""
    return max(ROUNDS, FLIPS_OF_PAIR * pairs)


def _p_values(differences: Sequence[np.ndarray]) -> list[float]:
    """Test each difference fp64 [Q]: by draws of its own, or, where there are many, by the same for all of them."""
    rounds = flips_for(len(differences))
    at_once = 1 if rounds == ROUNDS else len(differences)
    batches = [
        permutation_tests(np.stack(differences[i : i + at_once]), rounds) for i in range(0, len(differences), at_once)
    ]
    return [float(p_value) for p_values in batches for p_value in p_values]


def bootstrap_interval(values: np.ndarray, rounds: int = ROUNDS, seed: int = 1) -> list[float]:
    """Return both ends of the `LEVEL` interval of the mean of values fp64 [Q]; the same seed draws the same samples."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    at_once = max(1, DRAWN // len(values))
    sizes = [(min(at_once, rounds - start), len(values)) for start in range(0, rounds, at_once)]
    means = np.concatenate([values[rng.integers(len(values), size=size)].mean(axis=1) for size in sizes])
    tail = 50 * (1 - LEVEL)
    return [float(end) for end in np.percentile(means, [tail, 100 - tail])]


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number: by chance, at most 5 % of such families then have one below 0.05.

    The smallest is multiplied by their number m, the next one by m - 1, ...; none becomes smaller than one before it.
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(scaled))
    return [float(value) for value in corrected]
