"""trainer.evaluate with pipelines that end in duels: their stages, what these cost, and what is refused."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.evaluation.fusion import ONLY_SECOND, reordered
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.pairs import PairRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked
from tests import toy
from tests.trainer.interop.family_folders import write_causal_lm
from tests.trainer.ranking.retrieval.small_collections import candidate_lists
from tests.trainer.runs import write_run

BIAS = "position_bias"
LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16, "hard_negatives": 1}


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Siamese network, a monoBERT and a duoBERT."""
    folder, tokenizer = tmp_path_factory.mktemp("runs"), toy_collection / "tokenizer.json"
    return {
        "siamese": write_run(folder / "siamese", tokenizer, name="siamese", **LENGTHS),
        "mono": write_run(folder / "mono", tokenizer, name="cross_encoder", **LENGTHS),
        "duo": write_run(folder / "duo", tokenizer, name="duobert", seed=2, **LENGTHS),
    }


def run(collection: Path, out: Path, *systems: str, candidates: bool = False) -> dict[str, Any]:
    given = [f"--system={system}" for system in systems] + ["--candidates"] * candidates
    evaluate.main(["--collection", str(collection), "--split", "test", "--out", str(out), *given])
    results: dict[str, Any] = json.loads(out.read_text())
    return results


def re_ranked(task: Task, ranked: Sequence[Ranked], ranker: Ranker, depth: int) -> list[Ranked]:
    """Re-rank the first documents of each query, in the plainest way."""
    lists = [
        (query, [task.pool[i] for i in row.documents[:depth].tolist()])
        for query, row in zip(task.queries, ranked, strict=True)
    ]
    return [reordered(row, new, ONLY_SECOND) for row, new in zip(ranked, ranker.scores(lists), strict=True)]


def test_stages_are_chained_and_their_costs_are_kept(
    runs: dict[str, Path],
    toy_collection: Path,
    opened: Collection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Words, then vectors, one document a pass, two, then a list; the last model has a tokenizer of its own."""
    read_pairs = Mock(side_effect=PairRanker.scores)
    monkeypatch.setattr(PairRanker, "scores", lambda *given: read_pairs(*given))
    (siamese, mono, duo), model = runs.values(), write_causal_lm(tmp_path / "qwen3", "qwen3")
    systems = ["bm25", f"mono=bm25 > 40 {siamese} > 30 {mono}", f"same=mono > 1 {mono}", f"duo=mono > 10 {duo}"]
    systems += [f"few=mono > 5 {duo}(pairs=2, aggregate=min)", f"list=duo > 8 {model}(window=4, stride=3, shuffles=2)"]
    systems += [f"heap=duo > 8 {model}(sort=heap, window=3, top=2)"]
    results = run(toy_collection, tmp_path / "r.json", *systems)["systems"]
    assert read_pairs.call_count == 2  # a stage that several systems have is computed once
    task, options = Task.of(opened, "test"), {"window": "4", "stride": "3", "shuffles": "2"}
    ranked = Bm25Ranker(opened).system(task).rank(100)
    lengths = [len(row.documents) for row in ranked]
    for name, path, depth in (("", siamese, 40), ("mono", mono, 30), ("duo", duo, 10), ("list", model, 8)):
        ranker = open_ranker(path, opened)
        ranked = re_ranked(task, ranked, ranker.with_options(options) if name == "list" else ranker, depth)
        if name:
            assert results[name]["metrics"] == pytest.approx(task.measure(ranked).means)
    assert results["same"]["metrics"] == results["mono"]["metrics"]  # re-ranking one document changes nothing

    stages, few = results["list"]["stages"], results["few"]["stages"]
    chained = [f"> 40 {siamese}", f"> 30 {mono}", f"> 10 {duo}", f"> 8 {model}(window=4, stride=3, shuffles=2)"]
    assert [stage["stage"] for stage in stages] == ["bm25", *chained]
    assert [stage.get("depth") for stage in stages] == [None, 40, 30, 10, 8]
    assert all(stage["seconds"] >= 0 for stage in stages)
    singles, duels, windows = ([min(length, depth) for length in lengths] for depth in (30, 10, 8))
    most = sum(2 * (1 + -(-(n - 4) // 3)) for n in windows)
    of_each = [0, 1, np.mean(singles), np.mean([n * (n - 1) for n in duels]), most / len(windows)]
    assert [stage["passes"] for stage in stages] == [round(passes, 1) for passes in of_each]
    assert 3 <= results["heap"]["stages"][-1]["passes"] <= 4 + 2 * 2  # nodes with children, the first two and followers
    assert [*few[3].items()][0] == ("stage", f"> 5 {duo}(pairs=2, aggregate=min)")
    assert few[3]["passes"] == 10
    assert 0 < stages[3]["position_bias"] < 1
    assert not any("position_bias" in stage for stage in few)

    printed, single = capsys.readouterr(), stages[2]["passes"]
    times = " > ".join([r"BM25 [0-9.]+ s", *(rf"{depth} \S+ [0-9.]+ s" for depth in (40, 30)), r"5 .+ [0-9.]+ s"])
    costs = re.escape(f"0 + 1 + {single:,g} + 10 = {single + 11:,g}")
    assert re.search(rf"^few: {times}; forward passes a query: {costs}$", printed.out, re.MULTILINE)
    bias = f"duo: position bias of > 10 {duo}: {stages[3]['position_bias']:.4f}, the mean of |p_ij + p_ji - 1|"
    assert bias in printed.out.splitlines()
    for said in (
        f"{10 * len(task.queries):,} forward passes of two documents, 10 a query",
        f"{most:,} forward passes of lists, {most / len(windows):.0f} a query",
        "at most ",
    ):
        assert f"re-rank: {said}" in printed.err


@pytest.mark.parametrize(
    ("name", "keys", "passes"),
    [
        ("siamese", {}, 1),
        ("sparse", {"hard_negatives": 0}, 1),
        ("sparse", {"hard_negatives": 0, "query": "tokens"}, 0),
        ("cross_encoder", {}, 40),
        ("duobert", {}, 40 * 39),
        ("label_ranker", toy.PROMPT, 19),
    ],
)
def test_the_forward_passes_of_each_kind(
    opened: Collection, tmp_path: Path, name: str, keys: dict[str, Any], passes: int
) -> None:
    path = write_run(tmp_path / "run", opened.directory / "tokenizer.json", name=name, **{**LENGTHS, **keys})
    assert open_ranker(path, opened).passes(40) == passes
    assert open_ranker("bm25", opened).passes(40) == 0


def test_candidate_lists_have_a_position_bias_and_a_longest(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = candidate_lists(tmp_path / "c", toy_collection / "tokenizer.json").directory
    bias = run(lists, tmp_path / "r.json", f"x={runs['duo']}", candidates=True)["systems"]["x"]["stages"][0][BIAS]
    assert f"x: position bias of {runs['duo']}: {bias:.4f}, the mean" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        run(lists, tmp_path / "refused.json", f"x={runs['duo']}(most=5)", candidates=True)
    assert stopped.value.code == 2
    assert "a list of 6 documents: re-rank 5 or fewer" in capsys.readouterr().err


def test_ranks_of_duels_are_fused(runs: dict[str, Path], toy_collection: Path, tmp_path: Path) -> None:
    duo, out = runs["duo"], tmp_path / "r.json"
    fused = [f"ranks=bm25 > 5 +{duo}(rule=ranks, pairs=unordered)", f"usual=fuse(bm25, bm25 > 5 {duo})"]
    results = run(toy_collection, out, *fused, f"long=bm25 > 101 {duo}(pairs=1, most=101)")
    assert results["systems"]["ranks"]["stages"][1]["stage"] == f"> 5 +{duo}(pairs=unordered, rule=ranks)"
    assert 0 < results["systems"]["long"]["stages"][1]["passes"] <= 101
