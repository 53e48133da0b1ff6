"""The table and the files of an evaluation, and fused rows; TREC run files written, read and ranked again."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.task import Task, evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.runs import STEP, write_run

SIAMESE = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    tokenizer = toy_collection / "tokenizer.json"
    return {
        "one": write_run(folder / "one", tokenizer, seed=1, similarity="cosine", pooling="mean", **SIAMESE),
        "two": write_run(folder / "two", tokenizer, seed=2, **SIAMESE),
    }


def arguments(collection: Path, out: Path, *rest: str) -> list[str]:
    return ["--collection", str(collection), "--split", "test", "--out", str(out), *rest]


def run(collection: Path, out: Path, *rest: str) -> dict[str, Any]:
    """Evaluate; return what is in the file."""
    evaluate.main(arguments(collection, out, *rest))
    results: dict[str, Any] = json.loads(out.read_text())
    return results


def test_table_and_file(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["--system=bm25", f"--system=from_random={runs['one']}", f"--system=from_seed={runs['two']}"]
    metrics = ["--metrics", "recall@3", "mrr@10", "recall@1000", "recall@3"]  # one twice, and one that is there anyway
    results = run(toy_collection, tmp_path / "new" / "results.json", *systems, *metrics)
    assert results.keys() == {"version", "systems", "about", "pairs"}
    about, means = results["about"], {name: system["metrics"] for name, system in results["systems"].items()}
    assert [*means] == ["bm25", "from_random", "from_seed"]
    assert means["bm25"]["mrr@10"] > means["from_seed"]["mrr@10"]  # queries are parts of their documents
    assert means["from_seed"]["recall@1000"] == 1  # all documents of the pool
    assert means["from_seed"]["recall@3"] < 1
    assert (about["queries"], about["corpus"], about["split"]) == (20, 120, "test")
    assert about["metrics"] == ["recall@3", "recall@1000"]
    assert results["systems"]["from_seed"]["expression"] == str(runs["two"])
    (stage,) = results["systems"]["from_seed"]["stages"]
    assert stage["checkpoint"].endswith(f"two/checkpoints/step-{STEP:08d}")
    assert stage["max_tokens"] == {"query": 8, "document": 16}
    assert stage["seconds"] >= 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["MRR@10", "nDCG@10", "Recall@100", "Recall@3", "Recall@1000"]
    for line, label, found in zip(printed[1:4], ["BM25", "from_random", "from_seed"], means.values(), strict=True):
        assert [*found] == ["mrr@10", "ndcg@10", "recall@100", "recall@3", "recall@1000"]
        assert line.split() == [label, *(f"{value:.4f}" for value in found.values())]
    assert len({len(line) for line in printed[:4]}) == 1  # aligned
    (p_value,) = (p["p_value"] for p in results["pairs"] if p["systems"] == ["from_random", "from_seed"])
    assert printed[4].startswith(f"MRR@10: from_seed {means['from_seed']['mrr@10']:.4f} against from_random ")
    assert f"p = {p_value:.4f}" in printed[4]
    rule = "documents with equal scores rank in one random order, the same for every system"
    assert f"20 queries over 120 documents; {rule}" in printed[5]
    assert printed[6] == "encoders read the first 8/16 tokens of queries/documents, BM25 reads all of them"
    assert "k1=" in printed[7]


@pytest.fixture
def with_dev(toy_collection: Path, tmp_path: Path) -> Path:
    """The toy collection with a dev split, whose pool is half of the corpus.

    For most of its queries, the relevant document is not the one that they were taken from: BM25 alone is not best.
    """
    folder = tmp_path / "with dev"
    shutil.copytree(toy_collection, folder)
    (folder / "pools").mkdir()
    (folder / "pools" / "dev.txt").write_text("".join(f"d{i}\n" for i in range(60)))
    judged = "".join(f"q{i}\td{i if i % 4 == 0 else 7 * i % 60}\t1\n" for i in range(30))
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return build("beir", [folder], folder, tokenizers.load(folder / "tokenizer.json")).directory


def plain_fused(collection: Collection, split: str, run: Path, weight: float | None) -> list[float]:
    """MRR@10 of every query, for a run fused with BM25."""
    task = Task.of(collection, split)
    fused = []
    for ranker in (ranker_of(load_trained(run), task.collection), Bm25Ranker(task.collection)):
        scores = ranker.system(task).scores(slice(0, len(task.queries))).astype(np.float64)
        if weight is None:
            fused.append(1 / (60 + (scores[:, None] >= scores[:, :, None]).sum(2)))
        else:
            fused.append((scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True))
    a, b = (1.0, 1.0) if weight is None else (1 - weight, weight)
    order = np.argsort(-(a * fused[0] + b * fused[1]).astype(np.float32), axis=1, kind="stable")[:, :10]
    reciprocal = []
    for row, judged in zip(order, task.qrels.values(), strict=True):
        hits = [rank for rank, i in enumerate(row, 1) if collection.corpus.ids[task.pool[i]] in judged]
        reciprocal.append(1 / hits[0] if hits else 0.0)
    return reciprocal


NO_OTHER_SPLIT = "no split dev other than the evaluated one to choose a weight on"


@pytest.mark.parametrize(("dev", "given"), [(True, None), (False, None), (True, 0.35), (True, 1.0)])
def test_a_fused_row(
    runs: dict[str, Path],
    toy_collection: Path,
    with_dev: Path,
    tmp_path: Path,
    dev: bool,
    given: float | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, chosen = with_dev if dev else toy_collection, dev and given is None
    encoded = Mock(side_effect=TextEncoder.batches)
    monkeypatch.setattr(TextEncoder, "batches", lambda *texts: encoded(*texts))
    systems = ["--system=bm25", f"--system=m={runs['two']}"]
    fuse = f"fuse(m, bm25, weight={given})" if given is not None else "fuse(m, bm25)"
    results = run(folder, tmp_path / "results.json", *systems, f"--system=both={fuse}")
    assert encoded.call_count == (4 if chosen else 2)  # queries and documents, also of dev
    collection = Collection.open(folder)
    *parts, stage = results["systems"]["both"]["stages"]
    assert [part["stage"] for part in parts] == stage["fused"] == [str(runs["two"]), "bm25"]
    weight = stage.get("weight")
    assert stage.get("split") == ("dev" if chosen else None)
    if chosen:
        on_dev = {w / 10: np.mean(plain_fused(collection, "dev", runs["two"], w / 10)) for w in range(11)}
        assert 0 < weight < 1
        assert weight == max(on_dev, key=lambda w: (round(on_dev[w], 9), -w))
    else:
        assert weight == given
    fused = plain_fused(collection, "test", runs["two"], weight)
    means = {name: system["metrics"] for name, system in results["systems"].items()}
    assert means["both"]["mrr@10"] == pytest.approx(np.mean(fused))
    bm25 = evaluate_split(Bm25Ranker(collection), "test").values["mrr@10"]
    (p_value,) = (pair["p_value"] for pair in results["pairs"] if pair["systems"] == ["bm25", "both"])
    assert p_value == paired_permutation_test(np.array(fused), bm25)
    rule = f"both: reciprocal ranks, the sum of 1 / (60 + rank); {NO_OTHER_SPLIT}"
    if weight is not None:
        how = "weight chosen by nDCG@10 on split dev" if chosen else "weight as given"
        rule = f"both: {1 - weight:g} m + {weight:g} BM25, scores standardised per query; {how}"
    printed = capsys.readouterr().out
    assert rule in printed.splitlines()
    compared = f"MRR@10: both {np.mean(fused):.4f} against BM25 {means['bm25']['mrr@10']:.4f}, p = {p_value:.4f}"
    assert f"\n{compared}" in printed
    costs = r"m [0-9.]+ s, BM25 [0-9.]+ s, fuse [0-9.]+ s; forward passes a query: 1 \+ 0 \+ 0 = 1"
    assert re.search(rf"^both: {costs}$", printed, re.MULTILINE)


def test_a_fusion_changes_no_other_row_and_its_weight_is_not_chosen_on_the_evaluated_split(
    runs: dict[str, Path], with_dev: Path, tmp_path: Path
) -> None:
    given = ["--split=dev", "--system=bm25", f"--system=m={runs['one']}"]
    fused = run(with_dev, tmp_path / "r.json", *given, "--system=x=fuse(bm25, m)")["systems"]
    last = fused.pop("x")["stages"][-1]
    assert not last.keys() & {"weight", "split"}
    assert last["why"] == NO_OTHER_SPLIT
    alone = run(with_dev, tmp_path / "r.json", *given)["systems"]
    assert {name: system["metrics"] for name, system in alone.items()} == {
        name: system["metrics"] for name, system in fused.items()
    }


def test_another_tokenizer_is_refused(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    other = tokenizers.train(["another set of words"] * 3, 80, tmp_path / "tokenizer.json")
    shutil.copytree(toy_collection, tmp_path / "other")
    for name, inputs in (("other", tmp_path / "other"), ("built", "FORMAT INPUT... --out " + str(tmp_path / "built"))):
        build("beir", [tmp_path / "other"], tmp_path / name, other)
        line = refused(evaluate.main, *arguments(tmp_path / name, tmp_path / "r.json", f"--system=m={runs['one']}"))
        assert " was tokenised with another tokenizer than " in line
        assert re.search(rf"run: python -m data_prep collection {inputs} --tokenizer .*/step-.*/tokenizer.json$", line)


def test_run_files_are_written_read_compared_and_ranked_again(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, names = tmp_path / "written", ("bm25", "one", "fused")
    first = [f"--system=one={runs['one']}", "--system=bm25", "--system=fused=fuse(bm25, one)", f"--write-runs={folder}"]
    written = run(toy_collection, tmp_path / "a.json", *first)["systems"]
    assert {path.name for path in folder.iterdir()} == {f"{name}.trec" for name in names}
    capsys.readouterr()
    again = [f"--system=read-{name}={folder / name}.trec" for name in names]
    read = run(toy_collection, tmp_path / "b.json", *again, f"--system=two={runs['two']}", "--all-pairs")
    for name in names:
        assert read["systems"][f"read-{name}"]["metrics"] == written[name]["metrics"]
        assert read["systems"][f"read-{name}"]["expression"] == str(folder / f"{name}.trec")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:5]] == ["read-bm25", "read-one", "read-fused", "two"]
    pairs = [line for line in printed if line.startswith("  ") and "interval" in line]
    assert len(pairs) == len(read["pairs"]) == 6
    assert "MRR@10, every pair; p corrected by Holm for 6 of them:" in printed
    assert f"p = {read['pairs'][0]['p_value_holm']:.4f}" in pairs[0]
    assert not any(line.startswith("MRR@10: ") for line in printed)  # one model


def test_a_run_file_is_re_ranked_and_fused_like_what_it_was_written_of(toy_collection: Path, tmp_path: Path) -> None:
    keys = {**SIAMESE, "name": "cross_encoder", "loss": "binary", "hard_negatives": 1}
    cross = write_run(tmp_path / "cross", toy_collection / "tokenizer.json", **keys)
    run(toy_collection, tmp_path / "r.json", "--system=bm25", f"--write-runs={tmp_path}")
    whys = ["a run file has no other split to choose a weight on"] * 2
    for text, why in zip(("{} > 10 CROSS", "{} > 10 +CROSS", "fuse({}, bm25 > 10 CROSS)"), [None, *whys], strict=True):
        ways = [text.replace("CROSS", str(cross)).format(first) for first in ("bm25", tmp_path / "bm25.trec")]
        systems = [f"--system={name}={way}" for name, way in zip(("ranked", "read"), ways, strict=True)]
        found = run(toy_collection, tmp_path / "r.json", *systems)["systems"]
        assert found["read"]["metrics"] == found["ranked"]["metrics"]
        assert found["read"]["stages"][-1].get("why") == why


def test_ids_with_spaces_are_refused_before_anything_is_ranked(
    toy_collection: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = toy.write_beir(tmp_path / "c", {"a b": "one"}, {"q": "one"}, test="q\ta b\t1\n")
    build("beir", [folder], folder, tokenizers.load(toy_collection / "tokenizer.json"))
    options = ["--system=bm25", f"--write-runs={tmp_path / 'rankings'}"]
    line = refused(evaluate.main, *arguments(folder, tmp_path / "out" / "a.json", *options))
    assert "the id 'a b': run files cannot have ids with spaces in them" in line
    assert {path.name for path in tmp_path.iterdir()} == {"c"}
