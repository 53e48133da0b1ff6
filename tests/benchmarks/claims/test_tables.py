"""The tables of the claims: every number in its place, means over seeds, and p-values against the right start."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.claims import negatives, pipelines, rankers_table, stages
from benchmarks.claims.matching_collections import Model, Study, held_out
from benchmarks.claims.matching_tables import p_values
from benchmarks.claims.negatives import KINDS, OWN
from benchmarks.claims.tables import Row, report, table
from benchmarks.claims.tunings import COLLECTIONS, TEXTS, Tuning
from benchmarks.demo import long
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.evaluation.results_file import About, Results, SystemStage, results_of, write_results

TUNED = {"docstrings": ("docstrings",), "first": ("cranfield", "vaswani"), "second": ("cranfield", "vaswani")}
DEV = {"docstrings": {3e-4: 0.1, 1e-3: 0.3}, "first": {3e-4: 0.2, 1e-3: 0.1}, "second": {3e-4: 0.1, 1e-3: 0.1}}
METRICS = ("mrr@10", "ndcg@10", "recall@100")


def row(*seeds: float) -> Row:
    """A start with one value for all queries of a seed."""
    return Row([{name: [value] * 40 for name in COLLECTIONS} for value in seeds], DEV)


def test_a_table_of_starts_for_every_collection_and_one_of_the_rates() -> None:
    tunings = [Tuning(name, None, {}, (), dict.fromkeys(ranked, "")) for name, ranked in TUNED.items()]  # type: ignore[arg-type]
    bm25 = {text: dict.fromkeys(COLLECTIONS, [value] * 40) for text, value in zip(TEXTS, (0.5, 0.25), strict=True)}
    rows = {"random": row(0.2, 0.2), "mlm": row(0.2, 0.4), "seed": row(0.2, 0.4), "better": row(0.6, 0.6)}
    *of_collections, rates = report(rows, tunings, bm25).split("\n\n|")
    heads = [part.splitlines()[-1] for part in of_collections]
    assert heads == [f"{name}, 40 queries" for name in COLLECTIONS] + [
        "MRR@10 on the development splits with the rates 0.0003 / 0.001 / 0.003"
    ]
    for name, tuned_rates in (("docstrings", "0.001"), ("vaswani", "0.0003, 0.0003")):  # the first of ties
        (part,) = (part for part, head in zip(of_collections[1:], heads, strict=False) if head.startswith(name))
        assert part.splitlines()[2:7] == [
            f"| better | {tuned_rates} | 0.6000 | 0.6000 to 0.6000 | 0.6000, 0.6000 | 0.0001 | 0.0001 |",
            f"| mlm | {tuned_rates} | 0.3000 | 0.3000 to 0.3000 | 0.2000, 0.4000 |  | 0.0001 |",
            f"| seed | {tuned_rates} | 0.3000 | 0.3000 to 0.3000 | 0.2000, 0.4000 | 1.0000 | 0.0001 |",
            f"| random | {tuned_rates} | 0.2000 | 0.2000 to 0.2000 | 0.2000, 0.2000 | 0.0001 |  |",
            "| BM25, whole text | | 0.5000 | | | | |",
        ]
    assert rates.splitlines()[0] == " start | docstrings | first | second |"
    chosen = "0.1000 / **0.3000** | **0.2000** / 0.1000 | **0.1000** / 0.1000"
    assert rates.splitlines()[2:] == [f"| {name} | {chosen} |" for name in rows]
    alone = table({"ict": row(1.0)}, "docstrings", ["docstrings"], {})
    assert alone.endswith(" |  |  |")  # no p-value against a start that was not measured


def test_matching_models_have_p_values_of_neighbours() -> None:
    study = Study("irc", "lists", Path(), held_out("irc"), {"one": Model(""), "two": Model("")}, ("mrr", "other"))
    values = {("one", "random"): 0.1, ("two", "random"): 0.2, ("one", "seed"): 0.4, ("two", "seed"): 0.8}
    found: Any = {("IRC", "mrr", *of): [[value] * 40] * 2 for of, value in values.items()}
    assert p_values(study, found, "IRC", ["random", "seed"]).splitlines() == [
        "- from random weights: two +0.1000 against one, p = 0.0001",
        "- from SEED: two +0.4000 against one, p = 0.0001",
        "- one: from SEED +0.3000 against random weights, p = 0.0001",
        "- two: from SEED +0.6000 against random weights, p = 0.0001",
    ]


def test_stages_have_means_over_seeds_and_p_values_against_all_stages() -> None:
    seeds = [dict.fromkeys(stages.COLLECTIONS, [mrr] * 40) for mrr in (0.1, 0.3)]
    rows = dict.fromkeys(stages.CHAINS, seeds) | {"the mix alone": [seeds[0]] * 2}
    head, _, *lines = stages.table(rows, dict.fromkeys(stages.COLLECTIONS, [0.5] * 40)).splitlines()
    assert head == f"| stages | {' | '.join(f'{name}, 40 queries' for name in stages.COLLECTIONS)} |"
    assert lines[0] == "| all stages" + " | 0.2000" * 4 + " |"
    assert lines[1] == "| without text" + " | 0.2000 (p = 1.0000)" * 4 + " |"
    assert lines[4].startswith("| the mix alone | 0.1000 (p = 0.0001) |")
    assert lines[5] == "| BM25" + " | 0.5000" * 4 + " |"


def test_negatives_have_means_seeds_and_p_values_against_the_batchs() -> None:
    values = {
        kind: {seed: dict.fromkeys(COLLECTIONS, [(i + 2 * seed) / 20] * 40) for seed in (1, 2)}
        for i, kind in enumerate(KINDS)
    }
    head, _, *lines = negatives.table(values).splitlines()
    assert head == f"| negatives | {' | '.join(COLLECTIONS)} |"
    assert [line.split(" | ")[0] for line in lines] == [f"| {kind}" for kind in KINDS]
    assert lines[0] == f"| the batch's{' | 0.1500 (0.1000, 0.2000)' * 3} |"
    assert lines[[*KINDS].index(OWN)] == f"| {OWN}{' | 0.3000 (0.2500, 0.3500), p = 0.0001' * 3} |"


def test_labels_have_means_and_p_values_against_each_other_start() -> None:
    rows = long.table("labels", {"random": {500: [0.5] * 30}, "seed": {500: [1.0] * 30}}).splitlines()
    assert rows[0] == "| labels | random weights | SEED | p, SEED against random weights |"
    assert rows[2].startswith("| 500 | 0.5000 | 1.0000 | 0.0")


def results(values: Mapping[str, float], stages: Mapping[str, list[SystemStage]]) -> Results:
    """Return the results of systems, with one value for all four queries and every metric."""
    measured = {name: Metrics(dict.fromkeys(METRICS, np.full(4, value))) for name, value in values.items()}
    about = About(collection="c", split="test", queries=4, corpus=9)
    return results_of(measured, {name: (name, stages[name]) for name in values}, about)


def test_rankers_from_several_starts_are_side_by_side() -> None:
    values = {"bm25": 0.1, "dense": 0.2, "dense_bm25": 0.3, "duo": 0.4, "file": 0.5}
    passes = {"bm25": 0.0, "dense": 1.0, "dense_bm25": 1.0, "duo": 2450.0, "file": None}
    stages = {name: [SystemStage(stage=name, passes=number)] for name, number in passes.items()}
    seeds = [
        results({name: value + more * (name != "bm25") for name, value in values.items()}, stages)
        for more in (0.0, 0.2, -0.1, 0.05)
    ]
    titles = {"bm25": "BM25", "dense": "one vector", "duo": "duels", "file": "a file"}
    assert rankers_table.table({"ours": seeds[:3], "theirs": seeds[3:]}, titles) == [
        "| system | forward passes a query | from ours | fused with BM25 | from theirs | fused with BM25 |",
        "|---|---|---|---|---|---|",
        "| BM25 | 0 | 0.1000 |  | 0.1000 |  |",
        "| one vector | 1 | 0.2333 ± 0.1528 (p ≤ 1.0000) | 0.3333 ± 0.1528 (p ≤ 0.1260) | 0.2500 (p = 0.1260) "
        "| 0.3500 (p = 0.1260) |",
        "| duels | 2,450 | 0.4333 ± 0.1528 (p ≤ 0.1260) |  | 0.4500 (p = 0.1260) |  |",
        "| a file |  | 0.5333 ± 0.1528 (p ≤ 0.1260) |  | 0.5500 (p = 0.1260) |  |",
    ]


STAGES = {
    "bm25": [SystemStage(stage="bm25", seconds=2.0, passes=0)],
    "mono": [
        SystemStage(stage="bm25", seconds=2.0, passes=0),
        SystemStage(stage="> 1000 runs/mono", seconds=8.0, passes=1000, depth=1000),
    ],
    "file": [SystemStage(stage="x.trec")],
}


@pytest.mark.parametrize(
    ("seeds", "lines"),
    [
        pytest.param(
            [{"bm25": 0.25, "mono": 0.26, "file": 0.27}],
            [
                "| BM25 | 0 | 0.5 | 0.2500 | 0.2500 | 0.2500 |  |",
                "| file |  | 0 | 0.2700 | 0.2700 | 0.2700 | 0.1260 |",
                "| mono | 1,000 | 2.5 | 0.2600 | 0.2600 | 0.2600 | 0.1260 |",
            ],
            id="sorted-by-passes",
        ),
        pytest.param(
            [{"bm25": 0.25, "mono": 0.26}, {"bm25": 0.35, "mono": 0.36}],
            [
                "| BM25 | 0 | 0.5 | 0.3000 (0.2500, 0.3500) | 0.3000 | 0.3000 |  |",
                "| mono | 1,000 | 2.5 | 0.3100 (0.2600, 0.3600) | 0.3100 | 0.3100 | 0.1260, 0.1260 |",
            ],
            id="means-of-seeds",
        ),
        pytest.param([{"bm25": 0.25, "mono": 0.26}, {"bm25": 0.25, "file": 0.26}], None, id="other-systems"),
    ],
)
def test_pipelines(
    seeds: list[dict[str, float]], lines: list[str] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{number}.json" for number in range(len(seeds))]
    for file, values in zip(files, seeds, strict=True):
        write_results(file, results(values, STAGES))
    if lines is None:
        with pytest.raises(SystemExit) as stopped:
            pipelines.main([*map(str, files)])
        assert stopped.value.code == 2
        assert "1.json: has other systems than " in capsys.readouterr().err
    else:
        pipelines.main([*map(str, files)])
        head, rule, *rows = capsys.readouterr().out.splitlines()
        assert rule == "|---" * (head.count("|") - 1) + "|"
        assert rows == lines
