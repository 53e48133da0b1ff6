"""Metrics by hand and as in libraries; the permutation test against all permutations; intervals; every two systems."""

import itertools
from math import log2

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.trainer.ranking.evaluation import metrics, significance
from deepsiam.trainer.ranking.evaluation.metrics import (
    LIST_HEADINGS,
    MIND,
    Metric,
    Metrics,
    measure,
    measure_lists,
    paired_permutation_test,
)
from deepsiam.trainer.ranking.evaluation.significance import LEVEL, bootstrap_interval, every_pair, flips_for, holm


def test_hand_computed_toy() -> None:
    qrels = {
        "0": {"0": 1},  # "0" is an ordinary id
        "second": {"a": 1, "b": 1, "c": 0},
        "graded": {"a": 1, "b": 3},
        "missing": {"a": 1},
        "nothing relevant": {"a": 0},
        "deep": {"a": 1},
    }
    ranked = {
        "deep": [f"x{i}" for i in range(10)] + ["a"],  # rank 11: beyond 10, within 100
        "0": ["0", "1"],
        "second": ["c", "a", "d", "b"],
        "graded": ["a", "x", "b"],
        "nothing relevant": ["a", "b"],
        "not judged": ["a"],
    }
    measured = measure(qrels, ranked)
    expected = {
        "mrr@10": [1, 1 / 2, 1, 0, 0, 0],
        "ndcg@10": [1, (1 / log2(3) + 1 / log2(5)) / (1 + 1 / log2(3)), (1 + 3 / log2(4)) / (3 + 1 / log2(3)), 0, 0, 0],
        "recall@100": [1, 1, 1, 0, 0, 1],
    }
    assert measured.values.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(measured.values[name], values, atol=1e-12, err_msg=name)
        assert measured.means[name] == pytest.approx(np.mean(values))


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
def test_permutation_test_approaches_all_sign_flips(shift: float) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal(10) + shift, rng.standard_normal(10)
    signs = np.array(list(itertools.product([-1, 1], repeat=10)))
    exact = np.mean(abs(signs @ (a - b)) >= abs((a - b).sum()) - 1e-12)
    assert paired_permutation_test(a, b) == pytest.approx(exact, abs=0.02)
    assert paired_permutation_test(b, a) == paired_permutation_test(a, b)


def test_the_permutation_test_counts_the_observed_difference() -> None:
    same = np.array([0.0, 0.5, 1.0])
    assert paired_permutation_test(same, same) == 1
    assert paired_permutation_test(np.ones(100), np.zeros(100), rounds=999) == 1 / 1000
    # this sum depends on the order of addition: the permutation without flips must still count as extreme
    a = np.array([1 / 3, 1 / 7, 1 / 10, 1 / 9])
    assert paired_permutation_test(a, np.zeros(4)) == pytest.approx(2 / 16, abs=0.02)


def test_the_permutation_test_is_keyed_by_its_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.random.default_rng(0).random((2, 50))
    first = paired_permutation_test(a, b, rounds=500)
    assert paired_permutation_test(a, b, rounds=500, seed=2) != first
    np.random.seed(1)  # neither the global state has an effect, nor what is held at once
    monkeypatch.setattr(metrics, "FLIPS", 7 * 50)
    assert paired_permutation_test(a, b, rounds=500) == first


def test_candidate_lists_by_hand() -> None:
    ranked = [[0, 1, 0, 1, 0, 0], [1, 0], [0, 0, 0, 0, 0, 1], [1, 1]]
    nothing = [np.empty(0, np.float32)] * len(ranked)  # relevant besides the candidates of each list
    metrics = measure_lists([np.array(relevant, np.float32) for relevant in ranked], nothing)
    assert list(metrics.values) == [*LIST_HEADINGS, *MIND]
    expected = {
        "r@1": [0, 1, 0, 1 / 2],
        "r@2": [1 / 2, 1, 0, 1],
        "r@5": [1, 1, 0, 1],
        "mrr": [1 / 2, 1, 1 / 6, 1],
        "map": [(1 / 2 + 2 / 4) / 2, 1, 1 / 6, 1],
        "auc": [5 / 8, 1, 0, 1],
        "mrr_all": [(1 / 2 + 1 / 4) / 2, 1, 1 / 6, (1 + 1 / 2) / 2],
        "ndcg@5": [(1 / log2(3) + 1 / log2(5)) / (1 + 1 / log2(3)), 1, 0, 1],
        "ndcg@10": [(1 / log2(3) + 1 / log2(5)) / (1 + 1 / log2(3)), 1, 1 / log2(7), 1],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(metrics.values[name], values, err_msg=name)


GRADES = st.lists(st.integers(-3, 5), min_size=1, max_size=14)
LISTS = st.tuples(GRADES, st.lists(st.integers(1, 5), max_size=12)).filter(lambda both: max(both[0] + both[1]) > 0)


@given(st.lists(LISTS, min_size=1, max_size=5))
def test_candidate_lists_of_any_grades_are_measured_as_by_ir_measures(drawn: list[tuple[list[int], list[int]]]) -> None:
    """Grades below 0, above 1, and of documents that are not in the list."""
    import ir_measures

    ranked, elsewhere = ([np.array(part, np.float32) for part in parts] for parts in zip(*drawn, strict=True))
    qrels = [
        ir_measures.Qrel(f"{q}", f"{d}", grade)
        for q, (listed, others) in enumerate(drawn)
        for d, grade in enumerate([max(0, grade) for grade in listed] + others)
    ]
    run = [ir_measures.ScoredDoc(f"{q}", f"{d}", -d) for q, row in enumerate(ranked) for d in range(len(row))]
    names = {
        "r@1": "R@1",
        "r@2": "R@2",
        "r@5": "R@5",
        "mrr": "RR",
        "map": "AP",
        "ndcg@5": "nDCG@5",
        "ndcg@10": "nDCG@10",
    }
    theirs = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in names.values()], qrels, run)
    measured = measure_lists(ranked, elsewhere)
    for ours, name in names.items():
        assert measured.means[ours] == pytest.approx(theirs[ir_measures.parse_measure(name)]), ours
    for area, (listed, others) in zip(measured.values["auc"], drawn, strict=True):
        places = [(place, grade > 0) for place, grade in enumerate(listed)] + [(99, True)] * len(others)
        pairs = [a < b for a, right in places if right for b, other in places if not other]
        assert area == pytest.approx(np.mean(pairs) if pairs else 1.0)


@given(
    ranked=st.permutations(range(30)),
    grades=st.dictionaries(st.integers(0, 35), st.integers(-3, 4), min_size=1),
    k=st.integers(1, 40),
)
def test_metrics_are_those_of_trec_eval(ranked: list[int], grades: dict[int, int], k: int) -> None:
    qrels = {"q": {f"d{i}": grade for i, grade in grades.items()}}
    found = [f"d{i}" for i in ranked]
    means = measure(qrels, {"q": found}, [f"{kind}@{k}" for kind in ("mrr", "ndcg", "recall", "map")]).means
    hits = [rank for rank, i in enumerate(ranked[:k], 1) if grades.get(i, 0) > 0]
    assert means[f"mrr@{k}"] == pytest.approx(1 / hits[0] if hits else 0)
    theirs = {f"map_cut_{k}": f"map@{k}", f"recall_{k}": f"recall@{k}", f"ndcg_cut_{k}": f"ndcg@{k}"}
    measures = {f"map_cut.{k}", f"recall.{k}", f"ndcg_cut.{k}"}
    # it crashes where all grades are below 0; where one is not, they count as 0
    is_relevant = max(grades.values()) > 0
    evaluator = pytrec_eval.RelevanceEvaluator(qrels if is_relevant else {"q": {"none": 0}}, measures)
    scores = evaluator.evaluate({"q": {name: float(-rank) for rank, name in enumerate(found)}})["q"]
    for name, ours in theirs.items():
        assert means[ours] == pytest.approx(scores[name]), name


@pytest.mark.parametrize(
    "name", ["mrr", "mrr@0", "mrr@", "mrr@10001", "mrr@1x", "precision@5", "@5", "mrr@-1", "mrr@\u0663"]
)
def test_what_is_no_metric_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a metric"):
        Metric.of(name)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


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
