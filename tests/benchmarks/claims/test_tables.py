"""The tables of the claims: every number in its place, means over seeds, and p-values against the right start."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.claims import pipelines
from benchmarks.claims.tables import Row, report, table
from benchmarks.claims.tunings import COLLECTIONS, TEXTS, Tuning
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


def results(values: Mapping[str, float], stages: Mapping[str, list[SystemStage]]) -> Results:
    """Return the results of systems, with one value for all four queries and every metric."""
    measured = {name: Metrics(dict.fromkeys(METRICS, np.full(4, value))) for name, value in values.items()}
    about = About(collection="c", split="test", queries=4, corpus=9)
    return results_of(measured, {name: (name, stages[name]) for name in values}, about)


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
