"""Differences between every pair of systems: checked by hand, and the coverage of their confidence intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.trainer.ranking.evaluation import significance
from deepsiam.trainer.ranking.evaluation.metrics import Metrics, paired_permutation_test
from deepsiam.trainer.ranking.evaluation.significance import LEVEL, bootstrap_interval, every_pair, flips_for, holm


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(a <= b <= 1 for a, b in zip(p_values, corrected, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [corrected[i] for i in order] == sorted(corrected)
    assert min(corrected) == pytest.approx(min(1, min(p_values) * len(p_values)))


def test_an_interval_holds_the_mean_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    hits = []
    for seed in range(200):
        low, high = bootstrap_interval(rng.exponential(size=80), rounds=400, seed=seed)
        hits.append(low <= 1 <= high)
    assert 0.87 < np.mean(hits) < 0.99  # 95 %, a little less for a skewed sample of 80
    values = rng.standard_normal(100)
    interval, half = bootstrap_interval(values), 1.96 * values.std() / 10
    assert np.subtract(interval, values.mean()) == pytest.approx([-half, half], rel=0.1)
    monkeypatch.setattr(significance, "DRAWN", 250)  # the same samples, whatever it holds at once
    assert bootstrap_interval(values) == interval


def test_every_pair_of_systems() -> None:
    rng = np.random.default_rng(0)
    means = {"a": 0.0, "b": 0.5, "c": 0.55}
    metrics = {name: Metrics({"m": rng.standard_normal(60) * 0.5 + mean}) for name, mean in means.items()}
    pairs = every_pair(metrics, ["a", "b", "c"], "m")
    assert [pair.systems for pair in pairs] == [["a", "b"], ["a", "c"], ["b", "c"]]
    for pair in pairs:
        first, second = (metrics[name].values["m"] for name in pair.systems)
        assert pair.difference == pytest.approx(second.mean() - first.mean())
        assert pair.interval[0] < pair.difference < pair.interval[1]
        assert pair.p_value == paired_permutation_test(second, first)
        assert (pair.p_value < 0.05) == (pair.interval[0] > 0 or pair.interval[1] < 0)
    assert [pair.p_value_holm for pair in pairs] == holm([pair.p_value for pair in pairs])
    assert every_pair(metrics, ["a"], "m") == []


def test_among_many_pairs_there_are_flips_enough_for_a_small_p(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 flips for 780 pairs, the smallest p that Holm's method leaves is 0.078."""
    monkeypatch.setattr(significance, "bootstrap_interval", lambda _: [0.0, 0.0])  # which takes a while
    rng = np.random.default_rng(0)
    metrics = {str(i): Metrics({"m": rng.standard_normal(24) * 0.1 + i}) for i in range(40)}
    pairs = every_pair(metrics, [*metrics], "m")
    assert (len(pairs), flips_for(250), flips_for(len(pairs))) == (780, 10_000, 31_200)
    assert max(pair.p_value_holm for pair in pairs) < 1 - LEVEL
    alone = paired_permutation_test(metrics["0"].values["m"], metrics["1"].values["m"], 31_200)
    assert pairs[0].p_value == alone
