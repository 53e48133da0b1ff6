"""Results: their file, as it is read and refused, and their table."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.evaluation.results_file import (
    About,
    CandidateLists,
    Limits,
    Results,
    SystemResult,
    SystemStage,
    read_results,
    results_of,
    write_results,
)
from deepsiam.trainer.ranking.evaluation.significance import SystemPair
from deepsiam.trainer.ranking.evaluation.table import compared, table

OLD = {"bm25": {"mrr@10": 0.5}, "queries": 1, "corpus": 2, "collection": "c", "split": "test", "p_value": None}
METRICS = ("mrr@10", "ndcg@10", "recall@100")
PAIR: dict[str, Any] = {"systems": ["bm25", "version"], "metric": "mrr@10", "difference": 0, "interval": [0, 0]}
PAIR |= {"p_value": 1, "p_value_holm": 1}
ALONE: dict[str, Any] = {"expression": "a", "metrics": {"mrr@10": 1}, "stages": []}
VALUES = dict.fromkeys(METRICS, [0.5] * 9)  # of each of nine queries


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Results of two systems."""
    rng = np.random.default_rng(0)
    measured = {
        name: Metrics({metric: rng.random(9) for metric in METRICS})
        for name in ("bm25", "version")  # no name is reserved by the file
    }
    made = {name: (name, [SystemStage(stage=name, seconds=0.5)]) for name in measured}
    results = results_of(measured, made, About(collection="c", split="test", queries=9, corpus=99))
    write_results(tmp_path / "results.json", results)
    assert read_results(tmp_path / "results.json") == results
    return tmp_path / "results.json"


def test_keys_without_a_value_are_left_out_and_values_of_every_query_are_read(file: Path) -> None:
    written = json.loads(file.read_text())
    assert [*written] == ["version", "systems", "about", "pairs"]
    assert written["systems"]["version"]["stages"] == [{"stage": "version", "seconds": 0.5}]
    assert [pair["systems"] for pair in written["pairs"]] == [["bm25", "version"]]
    values = dict.fromkeys(written["systems"], VALUES)
    file.write_text(json.dumps({**written, "values": values}))
    assert read_results(file).values == values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version: input should be 1"),
        ({"systems": {}}, "systems: dictionary should have at least 1 item"),
        ({"systems": {"a": ALONE}}, "systems.a.stages: "),
        ({"systems": {"a": {**ALONE, "stages": [{"stage": "a"}]}}, "pairs": []}, "systems.a has no ndcg@10"),
        ({"pairs": [{"systems": ["bm25", "x"]}]}, "pairs.0.metric: field required"),
        ({"pairs": [PAIR | {"systems": ["bm25", "x"]}]}, "no systems are named bm25 and x"),
        *(({"pairs": [PAIR | {"metric": m}]}, f"pairs differ by '{m}', not by mrr@10") for m in ("foo", "ndcg@10")),
        ({"about": {"collection": "c", "split": "test", "queries": "9", "corpus": 1}}, "about.queries: "),
        ({"values": {}}, "values.bm25.mrr@10 is not 9 numbers, one for each query"),
        ({"values": {"bm25": VALUES, "version": {}}}, "values.version.mrr@10 is not 9 numbers"),
        ({"values": {"bm25": VALUES}}, "values.version.mrr@10 is not 9 numbers"),
        ({"values": {"bm25": VALUES | {"ndcg@10": [0.5] * 8}, "version": VALUES}}, "values.bm25.ndcg@10 is not 9"),
    ],
)
def test_what_is_wrong_is_named(file: Path, change: dict[str, Any], message: str) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(InputError) as error:
        read_results(file)
    assert message in str(error.value)
    assert str(error.value).endswith("; not results of this trainer.evaluate: run it again")


@pytest.mark.parametrize("content", ["not json", "[]", "{}", json.dumps(OLD)])
def test_other_files_and_those_of_older_versions_are_refused(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(InputError, match="not results of this trainer.evaluate: run it again"):
        read_results(file)


SCORES = dict.fromkeys(("mrr@10", "ndcg@10", "recall@100", "r@1", "r@2", "r@5", "mrr", "map"), 0.5)
SAME: dict[str, Any] = {"metric": "mrr@10", "difference": 0, "interval": [0, 0], "p_value": 1, "p_value_holm": 1}


def results_with(systems: dict[str, list[SystemStage]], **about: Any) -> Results:
    """Results of systems with these stages; every two of them differ by nothing."""
    return Results(
        version=1,
        systems={
            name: SystemResult(expression=" ".join(stage.stage for stage in stages), metrics=SCORES, stages=stages)
            for name, stages in systems.items()
        },
        about=About(**{"collection": "c", "split": "test", "queries": 1, "corpus": 1, **about}),
        pairs=[SystemPair(systems=[*pair], **SAME) for pair in combinations(systems, 2)],
    )


def model(path: str, query: int = 8, document: int = 16, kept_of_query: str | None = None, **stage: Any) -> SystemStage:
    """A stage of a model."""
    limits = Limits(query=query, document=document, kept_of_query=kept_of_query)
    return SystemStage(**{"stage": path, "model": path, "checkpoint": f"{path}/step", "max_tokens": limits, **stage})


BM25 = SystemStage(stage="bm25", model="bm25", seconds=1.0)


def test_the_table_shows_how_much_of_a_text_each_system_reads() -> None:
    read = "encoders read the first tokens of queries/documents: "
    lines = list(table(results_with({"a": [model("x")], "b": [model("y", 8, 32)], "c": [model("z")]})))
    assert lines[-1] == f"{read}8/16 (a and c), 8/32 (b)"
    assert not any("tokens" in line for line in table(results_with({"bm25": [BM25]})))
    assert list(table(results_with({"a": [model("x", kept_of_query="end")]})))[-1] == f"{read}last 8/16 (a)"
    # a model that only re-ranks has its path for a name
    again = [BM25, model("runs/m", stage="> 9 runs/m", depth=9, seconds=2.0)]
    lines = list(table(results_with({"a": again, "b": [model("x", 4, 4)]})))
    assert "a: BM25 1.0 s > 9 runs/m 2.0 s" in lines
    assert lines[-2] == f"{read}8/16 (runs/m), 4/4 (b), BM25 reads all of them"
    assert lines[-1].startswith("BM25: Lucene")


def test_a_pipeline_shows_its_forward_passes_and_the_position_bias() -> None:
    first = BM25.model_copy(update={"passes": 0.0})
    mono = model("runs/m", stage="> 999 runs/m", depth=999, passes=990.5)
    duo = model("runs/d", stage="> 40 runs/d", depth=40, passes=1560, position_bias=0.03125)
    lines = list(table(results_with({"a": [first, mono, duo], "b": [SystemStage(stage="x.trec"), mono]})))
    assert "a: BM25 1.0 s > 999 runs/m > 40 runs/d; forward passes a query: 0 + 990.5 + 1,560 = 2,550.5" in lines
    assert "a: position bias of > 40 runs/d: 0.0312, the mean of |p_ij + p_ji - 1|" in lines
    assert "b: x.trec > 999 runs/m" in lines  # what a run file took is not known


def test_lists_of_several_sizes_have_no_number_in_the_heading() -> None:
    lists = CandidateLists(lists=2000, left_out=0, fewest=2, most=9)
    lines = list(table(results_with({"a": [SystemStage(stage="x")]}, candidates=lists, corpus=7)))
    assert lines[0].split() == ["R@1", "R@2", "R@5", "MRR", "MAP"]
    assert lines[-1].startswith("2,000 lists of 2 to 9 candidates, 7 different documents; ")


def test_how_scores_were_fused() -> None:
    about = {"stage": "fuse", "fused": ["bm25", "x"]}
    systems = {
        "m": [model("x")],
        "chosen": [BM25, model("x"), SystemStage(weight=0.3, split="dev", **about)],
        "given": [BM25, model("x"), SystemStage(weight=0.35, **about)],
        "asked": [BM25, model("x"), SystemStage(**about)],
        "without": [BM25, model("x"), SystemStage(why="no split dev", **about)],
        "again": [BM25, model("x", stage="> 9 +x", depth=9, fused=["bm25", "x"], weight=1.0, split="dev")],
    }
    rules = [line for line in table(results_with(systems)) if "scores standardised" in line or "reciprocal" in line]
    assert rules == [
        "chosen: 0.7 BM25 + 0.3 m, scores standardised per query; weight chosen by nDCG@10 on split dev",
        "given: 0.65 BM25 + 0.35 m, scores standardised per query; weight as given",
        "asked: reciprocal ranks, the sum of 1 / (60 + rank)",
        "without: reciprocal ranks, the sum of 1 / (60 + rank); no split dev",
        "again: 0 found + 1 m, scores standardised per query; weight chosen by nDCG@10 on split dev",
    ]


def test_the_last_two_models_are_compared_and_combined_systems_with_bm25() -> None:
    def pairs(*systems: str) -> list[list[str]]:
        made = {"bm25": [BM25], "run file": [SystemStage(stage="x.trec")]}
        stages = {
            name: made.get(name, [model(name)] if name.startswith("m") else [BM25, model("x")]) for name in systems
        }
        return [pair.systems for pair in compared(results_with(stages))]

    assert pairs("bm25", "m1") == []
    assert pairs("bm25", "m1", "m2", "m3", "run file") == [["m2", "m3"]]
    assert pairs("bm25", "m1", "m2", "both") == [["m1", "m2"], ["bm25", "both"]]
    assert pairs("m1", "both", "again") == [["both", "again"]]
    assert pairs("bm25", "both") == [["bm25", "both"]]
    assert pairs("both", "bm25", "run file") == [["both", "bm25"]]
