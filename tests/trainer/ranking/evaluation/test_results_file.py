"""The file of results: written as it is read, and refused where it is not whole."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.evaluation.results_file import About, SystemStage, read_results, results_of, write_results

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
