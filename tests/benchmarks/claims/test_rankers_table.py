"""The table of all rankers: means, deviations and p-values by start, and cells of systems that are not fused."""

from __future__ import annotations

from statistics import mean, stdev

import numpy as np

from benchmarks.claims.rankers_table import table
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.evaluation.results_file import About, Results, SystemStage, results_of

TITLES = {"bm25": "BM25", "dense": "one vector", "duo": "duels", "file": "a file"}
PASSES = {"bm25": 0.0, "dense": 1.0, "dense_bm25": 1.0, "duo": 2450.0, "file": None}


def results(seed: int) -> Results:
    rng = np.random.default_rng(seed)
    values = {name: rng.random(40) + number for number, name in enumerate(PASSES)}
    values["bm25"] = np.random.default_rng(0).random(40)  # has no seed
    measured = {name: Metrics(dict.fromkeys(("mrr@10", "ndcg@10", "recall@100"), row)) for name, row in values.items()}
    made = {name: (name, [SystemStage(stage=name, passes=passes)]) for name, passes in PASSES.items()}
    return results_of(measured, made, About(collection="c", split="test", queries=40, corpus=9))


def test_starts_are_side_by_side() -> None:
    three, one = [results(seed) for seed in (1, 2, 3)], [results(4)]
    head, _, bm25, dense, duo, file = table({"ours": three, "theirs": one}, TITLES)
    assert head == "| system | forward passes a query | from ours | fused with BM25 | from theirs | fused with BM25 |"
    metric = three[0].systems["bm25"].metrics["mrr@10"]
    assert bm25 == f"| BM25 | 0 | {metric:.4f} |  | {metric:.4f} |  |"
    values = [found.systems["dense"].metrics["mrr@10"] for found in three]
    fused = one[0].systems["dense_bm25"].metrics["mrr@10"]
    p = {
        seed: {pair.systems[1]: pair.p_value for pair in found.pairs if pair.systems[0] == "bm25"}
        for seed, found in enumerate([*three, *one])
    }
    cells = dense.strip("| ").split(" | ")
    assert cells[:2] == ["one vector", "1"]
    assert cells[2] == f"{mean(values):.4f} ± {stdev(values):.4f} (p ≤ {max(p[i]['dense'] for i in range(3)):.4f})"
    assert cells[5] == f"{fused:.4f} (p = {p[3]['dense_bm25']:.4f})"
    assert duo.startswith("| duels | 2,450 | ")
    assert duo.endswith(" |  |")  # has no fusion
    assert file.startswith("| a file |  | ")
