"""The tables of the claims: every number in its place, means over seeds, and p-values against the right start."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest

from benchmarks.claims import negatives, pipelines, rankers_table, stages
from benchmarks.claims.matching_collections import Model, Study, held_out
from benchmarks.claims.matching_tables import p_values
from benchmarks.claims.matching_tables import table as matching_table
from benchmarks.claims.negatives import BATCH, KINDS, OWN
from benchmarks.claims.tables import Row, rates_table, report, table
from benchmarks.claims.tunings import COLLECTIONS, RATES, TEXTS, Tuning
from benchmarks.demo import long
from deepsiam.trainer.ranking.evaluation.metrics import Metrics, paired_permutation_test
from deepsiam.trainer.ranking.evaluation.results_file import About, Results, SystemStage, results_of, write_results

TUNED = {"docstrings": ("docstrings",), "first": ("cranfield", "vaswani"), "second": ("cranfield", "vaswani")}
METRICS = ("mrr@10", "ndcg@10", "recall@100")


def row(values: np.ndarray, dev: Mapping[str, Mapping[float, float]] | None = None) -> Row:
    """A start with the same values fp64 [seeds, queries] in every collection."""
    seeds = [{collection: list(queries) for collection in COLLECTIONS} for queries in values]
    return Row(seeds, dev or {tuning: {1e-3: 0.2, 3e-3: 0.1} for tuning in TUNED})


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_for_each_start_the_best_first() -> None:
    plain = np.random.default_rng(0).random((3, 200))
    rows = {"mlm": row(plain), "better": row(np.clip(plain + 0.2, 0, 1)), "random": row(plain.copy())}
    of_bm25 = dict(zip(TEXTS, ([0.5], [0.25]), strict=True))
    head, _, *lines = map(cells, table(rows, "cranfield", ["first"], of_bm25).splitlines())
    assert [line[0] for line in lines] == ["better", "mlm", "random", "BM25, whole text", "BM25, cut text"]
    assert {len(line) for line in lines} == {len(head)}
    mlm, random = head.index("p against the masked LM"), head.index("p against random weights")
    assert max(float(lines[0][mlm]), float(lines[0][random])) < 0.001
    assert (lines[1][mlm], lines[1][random], lines[2][mlm], lines[2][random]) == ("", "1.0000", "1.0000", "")
    assert [line[head.index("MRR@10")] for line in lines[3:]] == ["0.5000", "0.2500"]
    assert lines[1][head.index("by seed")] == ", ".join(f"{mean:.4f}" for mean in plain.mean(1))
    alone = table({"ict": row(np.ones((1, 4)))}, "docstrings", ["docstrings"], {}).splitlines()[2]
    assert cells(alone)[-2:] == ["", ""]  # no p-value against a start that was not measured


def test_the_chosen_rates_are_printed_and_bold() -> None:
    dev = {"docstrings": {3e-4: 0.1, 1e-3: 0.3}, "first": {3e-4: 0.2, 1e-3: 0.1}, "second": {3e-4: 0.1, 1e-3: 0.1}}
    rows = {"mlm": row(np.ones((1, 4)), dev)}
    for collection, tuned, rates in (
        ("docstrings", ["docstrings"], "0.001"),
        ("vaswani", ["first", "second"], "0.0003, 0.0003"),
    ):
        assert cells(table(rows, collection, tuned, {}).splitlines()[2])[1] == rates
    head, _, line = map(cells, rates_table(rows).splitlines())
    assert head == ["start", "docstrings", "first", "second"]
    assert line == ["mlm", "0.1000 / **0.3000**", "**0.2000** / 0.1000", "**0.1000** / 0.1000"]


def test_a_table_for_every_collection_and_one_of_rates() -> None:
    tunings = [Tuning(name, None, {}, (), dict.fromkeys(ranked, "")) for name, ranked in TUNED.items()]  # type: ignore[arg-type]
    bm25 = {text: {name: [0.5, 0.1] for name in COLLECTIONS} for text in TEXTS}
    values = np.array([[0.2, 0.4], [0.2, 0.4]])
    text = report({"mlm": row(values), "seed": row(values)}, tunings, bm25)
    assert [text.count(f"{name}, 2 queries\n") for name in COLLECTIONS] == [1] * len(COLLECTIONS)
    assert [text.count(f"| BM25, {what} | | 0.3000 |") for what in TEXTS] == [len(COLLECTIONS)] * 2
    assert f"with the rates {' / '.join(f'{rate:g}' for rate in RATES)}\n" in text
    assert text.count("| seed | 0.001 | 0.3000 |") == 1
    assert text.count("| seed | 0.001, 0.001 | 0.3000 |") == 2


def test_matching_models_have_means_deviations_and_p_values_of_neighbours() -> None:
    models = {"one": Model(""), "two": Model("")}
    study = Study("irc", "lists", Path(), held_out("irc"), models, ("mrr", "other"))
    rng = np.random.default_rng(0)
    found: Any = {("IRC", m, "", ""): [[0.5] * 40] for m in study.metrics}
    for start, gain in (("random", 0.0), ("seed", 0.5)):
        for model, more in (("one", 0.0), ("two", 0.25)):
            values = [[float(v) + gain + more for v in rng.random(40) / 100] for _ in range(2)]
            found |= {("IRC", m, model, start): values for m in study.metrics}
    lines = matching_table(study, found, "IRC", ["random", "seed"]).splitlines()
    assert lines[0] == "| IRC | random weights | SEED |"
    means = [np.mean(of_seed) for of_seed in found["IRC", "mrr", "two", "seed"]]
    spread = abs(means[0] - means[1]) / 2**0.5  # the standard deviation of two numbers
    assert lines[3].endswith(f"| {np.mean(means):.4f} ± {spread:.4f} ({np.mean(means):.4f}) |")
    assert lines[-1] == "| BM25 | 0.5000 (0.5000) | |"
    tests = p_values(study, found, "IRC", ["random", "seed"]).splitlines()
    compared = ["- from random weights: two", "- from SEED: two", "- one: from SEED", "- two: from SEED"]
    assert [line.split(" against ")[0].rsplit(" ", 1)[0] for line in tests] == compared
    assert all(line.endswith("p = 0.0001") for line in tests)


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
    rng = np.random.default_rng(0)
    values = {
        kind: {seed: {name: (rng.random(40) + i / 4).tolist() for name in COLLECTIONS} for seed in (1, 2)}
        for i, kind in enumerate(KINDS)
    }
    head, _, *rows = map(cells, negatives.table(values).splitlines())
    assert head == ["negatives", *COLLECTIONS]
    assert [row[0] for row in rows] == list(KINDS)
    own, base = (np.mean([values[kind][seed]["vaswani"] for seed in (1, 2)], axis=0) for kind in (OWN, BATCH))
    first, second = (np.mean(values[OWN][seed]["vaswani"]) for seed in (1, 2))
    p = paired_permutation_test(own, base)
    assert rows[list(KINDS).index(OWN)][-1] == f"{own.mean():.4f} ({first:.4f}, {second:.4f}), p = {p:.4f}"
    assert not any("p =" in cell for cell in rows[0])


def test_labels_have_means_and_p_values_against_each_other_start() -> None:
    rows = long.table("labels", {"random": {500: [0.5] * 30}, "seed": {500: [1.0] * 30}}).splitlines()
    assert rows[0] == "| labels | random weights | SEED | p, SEED against random weights |"
    assert rows[2].startswith("| 500 | 0.5000 | 1.0000 | 0.0")


def results(values: Mapping[str, np.ndarray], stages: Mapping[str, list[SystemStage]]) -> Results:
    """Return the results of systems, with the same values in every metric."""
    measured = {name: Metrics(dict.fromkeys(METRICS, of)) for name, of in values.items()}
    queries = len(next(iter(values.values())))
    about = About(collection="c", split="test", queries=queries, corpus=9)
    return results_of(measured, {name: (name, stages[name]) for name in values}, about)


PASSES = {"bm25": 0.0, "dense": 1.0, "dense_bm25": 1.0, "duo": 2450.0, "file": None}


def of_seed(seed: int) -> Results:
    rng = np.random.default_rng(seed)
    values = {name: rng.random(40) + number for number, name in enumerate(PASSES)}
    values["bm25"] = np.random.default_rng(0).random(40)  # has no seed
    return results(values, {name: [SystemStage(stage=name, passes=passes)] for name, passes in PASSES.items()})


def test_rankers_from_several_starts_are_side_by_side() -> None:
    three, one = [of_seed(seed) for seed in (1, 2, 3)], [of_seed(4)]
    titles = {"bm25": "BM25", "dense": "one vector", "duo": "duels", "file": "a file"}
    head, _, bm25, dense, duo, file = rankers_table.table({"ours": three, "theirs": one}, titles)
    assert head == "| system | forward passes a query | from ours | fused with BM25 | from theirs | fused with BM25 |"
    metric = three[0].systems["bm25"].metrics["mrr@10"]
    assert bm25 == f"| BM25 | 0 | {metric:.4f} |  | {metric:.4f} |  |"
    values = [found.systems["dense"].metrics["mrr@10"] for found in three]
    fused = one[0].systems["dense_bm25"].metrics["mrr@10"]
    p = [{pair.systems[1]: pair.p_value for pair in found.pairs if pair.systems[0] == "bm25"} for found in three + one]
    shown = cells(dense)
    assert shown[:2] == ["one vector", "1"]
    assert shown[2] == f"{mean(values):.4f} ± {stdev(values):.4f} (p ≤ {max(of['dense'] for of in p[:3]):.4f})"
    assert shown[5] == f"{fused:.4f} (p = {p[3]['dense_bm25']:.4f})"
    assert duo.startswith("| duels | 2,450 | ")
    assert duo.endswith(" |  |")  # has no fusion
    assert file.startswith("| a file |  | ")


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
            [(0.25, "bm25", "mono", "file")],
            [
                "| BM25 | 0 | 0.5 | 0.2500 | 0.2500 | 0.2500 |  |",
                "| file |  | 0 | 0.2700 | 0.2700 | 0.2700 | 0.1260 |",
                "| mono | 1,000 | 2.5 | 0.2600 | 0.2600 | 0.2600 | 0.1260 |",
            ],
            id="sorted-by-passes",
        ),
        pytest.param(
            [(0.25, "bm25", "mono"), (0.35, "bm25", "mono")],
            [
                "| BM25 | 0 | 0.5 | 0.3000 (0.2500, 0.3500) | 0.3000 | 0.3000 |  |",
                "| mono | 1,000 | 2.5 | 0.3100 (0.2600, 0.3600) | 0.3100 | 0.3100 | 0.1260, 0.1260 |",
            ],
            id="means-of-seeds",
        ),
        pytest.param([(0.25, "bm25", "mono"), (0.25, "bm25", "file")], None, id="other-systems"),
    ],
)
def test_pipelines(
    seeds: list[tuple[Any, ...]], lines: list[str] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for number, (value, *names) in enumerate(seeds):
        values = {name: np.full(4, value + i / 100) for i, name in enumerate(names)}
        files.append(str(tmp_path / f"{number}.json"))
        write_results(Path(files[-1]), results(values, STAGES))
    if lines is None:
        with pytest.raises(SystemExit) as stopped:
            pipelines.main(files)
        assert stopped.value.code == 2
        assert "1.json: has other systems than " in capsys.readouterr().err
    else:
        pipelines.main(files)
        assert capsys.readouterr().out.splitlines()[2:] == lines
