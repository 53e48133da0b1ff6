"""The numbers of an evaluation, its table and file, and what it refuses."""

import json
import shutil
from itertools import combinations
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from data_prep.collections.build import build
from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from data_prep.tokenizers import tokenizer as tokenizers
from tests.trainer.runs import STEP, write_run
from trainer import evaluate
from trainer.ranking.evaluation.metrics import paired_permutation_test
from trainer.ranking.evaluation.task import Task, evaluate_split
from trainer.ranking.rankers.bm25 import Bm25Ranker
from trainer.ranking.rankers.registry import ranker_of
from trainer.ranking.retrieval import texts
from trainer.training.checkpoints.load import load_trained

SIAMESE = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    tokenizer = toy_collection / "tokenizer.json"
    return {
        "one": write_run(folder / "one", tokenizer, seed=1, similarity="cosine", pooling="mean", **SIAMESE),
        "two": write_run(folder / "two", tokenizer, seed=2, **SIAMESE),
        "seed": write_run(folder / "seed", tokenizer, name="seed", max_tokens=32, decoder_layers=1),
    }


def plain_reciprocal_ranks(run: Path, collection: Collection) -> list[float]:
    """MRR@10 of every query, from all texts in one batch and all scores in one matrix."""
    trained = load_trained(run)
    t, qrels = trained.tokenizer, collection.qrels("test")

    def embed(texts: list[np.ndarray], longest: int) -> torch.Tensor:
        ids = torch.full((len(texts), longest), t.pad)
        for row, tokens in zip(ids, texts, strict=True):
            framed = [t.cls, *tokens[: longest - 2].tolist(), t.sep]
            row[: len(framed)] = torch.tensor(framed)
        with torch.no_grad():
            return trained.model.embed_queries(ids, ids != t.pad).vectors[:, 0]

    documents = embed([collection.corpus.tokens(i) for i in range(len(collection.corpus))], 16)
    queries = embed([collection.queries.tokens(i) for i in collection.queries.ids.find([*qrels])], 8)
    order = (queries @ documents.T).argsort(dim=1, descending=True, stable=True)[:, :10]
    reciprocal = []
    for row, judged in zip(order, qrels.values(), strict=True):
        hits = [rank for rank, i in enumerate(row, 1) if collection.corpus.ids[i] in judged]
        reciprocal.append(1 / hits[0] if hits else 0.0)
    return reciprocal


@pytest.mark.parametrize("name", ["one", "two"])
def test_metrics_are_those_of_a_plain_loop(runs: dict[str, Path], toy_collection: Path, name: str) -> None:
    collection = Collection.open(toy_collection)
    metrics = evaluate_split(ranker_of(load_trained(runs[name]), collection), "test")
    expected = plain_reciprocal_ranks(runs[name], collection)
    np.testing.assert_allclose(metrics.values["mrr@10"], expected)
    assert 0 < sum(expected) < len(expected)
    assert metrics.means["recall@100"] >= metrics.means["mrr@10"]


def arguments(collection: Path, out: Path, *rest: str) -> list[str]:
    return ["--collection", str(collection), "--split", "test", "--out", str(out), *rest]


def test_table_and_file(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "results.json"
    models = [f"--model=from_random={runs['one']}", f"--model=from_seed={runs['two']}"]
    evaluate.main(arguments(toy_collection, out, "--bm25", *models))
    results = json.loads(out.read_text())
    assert list(results)[:3] == ["bm25", "from_random", "from_seed"]
    metrics = {"mrr@10", "ndcg@10", "recall@100"}
    assert all(results[name].keys() == metrics for name in ("bm25", "from_random", "from_seed"))
    assert results["bm25"]["mrr@10"] > results["from_seed"]["mrr@10"]  # queries are parts of their documents
    assert 0 < results["p_value"] <= 1
    assert (results["queries"], results["corpus"], results["split"]) == (20, 120, "test")
    assert results["checkpoints"]["from_seed"].endswith(f"two/checkpoints/step-{STEP:08d}")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["MRR@10", "nDCG@10", "Recall@100"]
    for line, name, label in zip(printed[1:4], results, ["BM25", "from_random", "from_seed"], strict=False):
        assert line.split() == [label, *(f"{results[name][m]:.4f}" for m in ("mrr@10", "ndcg@10", "recall@100"))]
    assert len({len(line) for line in printed[:4]}) == 1  # aligned
    assert f"p = {results['p_value']:.4f}" in printed[4]
    assert "20 queries over 120 documents; equal scores rank in an order drawn once for all systems" in printed[5]
    assert printed[6] == "encoders read the first 8/16 tokens of queries/documents, BM25 reads all of them"
    assert "k1=" in printed[7]


def test_the_table_shows_how_much_of_a_text_each_system_reads() -> None:
    metrics = {"mrr@10": 0.5, "ndcg@10": 0.5, "recall@100": 0.5}
    short, long = {"query": 8, "document": 16}, {"query": 8, "document": 32}
    results = {"a": metrics, "b": metrics, "c": metrics, "p_value": None, "queries": 1, "corpus": 1}
    lines = list(evaluate.table({**results, "max_tokens": {"a": short, "b": long, "c": short}}, ["a", "b", "c"]))
    assert lines[-1] == "encoders read the first tokens of queries/documents: 8/16 (a and c), 8/32 (b)"
    only_bm25 = {"bm25": metrics, "p_value": None, "queries": 1, "corpus": 1, "max_tokens": {}}
    assert not any("tokens" in line for line in evaluate.table(only_bm25, []))


def test_one_model_has_no_p_value(runs: dict[str, Path], toy_collection: Path, tmp_path: Path) -> None:
    evaluate.main(arguments(toy_collection, tmp_path / "r.json", f"--model=m={runs['one']}"))
    results = json.loads((tmp_path / "r.json").read_text())
    assert results["p_value"] is None
    assert "bm25" not in results


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
    for system in (
        ranker_of(load_trained(run), task.collection).system(task),
        Bm25Ranker(task.collection).system(task),
    ):
        scores = system.scores(slice(0, len(task.queries))).astype(np.float64)
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


@pytest.mark.parametrize("dev", [True, False])
def test_a_fused_row(
    runs: dict[str, Path],
    toy_collection: Path,
    with_dev: Path,
    tmp_path: Path,
    dev: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, out = with_dev if dev else toy_collection, tmp_path / "results.json"
    encoded = Mock(side_effect=texts.encode_texts)
    monkeypatch.setattr(texts, "encode_texts", encoded)
    models = [f"--model=from_random={runs['one']}", f"--model=from_seed={runs['two']}"]
    evaluate.main(arguments(folder, out, "--bm25", *models, "--fuse=from_seed+bm25"))
    assert encoded.call_count == (6 if dev else 4)  # queries and documents of two models, and of one model on dev
    results = json.loads(out.read_text())
    collection = Collection.open(folder)
    rule, split = ("standardised", "dev") if dev else ("reciprocal ranks", None)
    weight = results["fusion"]["weight"]
    assert results["fusion"] == {"systems": ["from_seed", "bm25"], "rule": rule, "weight": weight, "split": split}
    if dev:
        on_dev = {w / 10: np.mean(plain_fused(collection, "dev", runs["two"], w / 10)) for w in range(11)}
        assert 0 < weight < 1
        assert weight == max(on_dev, key=lambda w: (round(on_dev[w], 9), -w))
    fused = plain_fused(collection, "test", runs["two"], weight)
    assert results["fused"].keys() == {"mrr@10", "ndcg@10", "recall@100"}
    assert results["fused"]["mrr@10"] == pytest.approx(np.mean(fused))
    bm25 = evaluate_split(Bm25Ranker(collection), "test").values["mrr@10"]
    assert results["p_value_bm25"] == paired_permutation_test(np.array(fused), bm25)
    printed = capsys.readouterr().out.splitlines()
    assert printed[4].split() == ["from_seed+bm25", *(f"{value:.4f}" for value in results["fused"].values())]
    assert len({len(line) for line in printed[:5]}) == 1  # aligned
    assert printed[5].startswith(f"MRR@10: from_seed {results['from_seed']['mrr@10']:.4f} against from_random")
    assert printed[6].startswith(
        f"MRR@10: from_seed+bm25 {np.mean(fused):.4f} against BM25 {results['bm25']['mrr@10']:.4f}, "
        f"p = {results['p_value_bm25']:.4f}"
    )
    rules = {
        True: f"from_seed+bm25: {1 - (weight or 0):.1f} from_seed + {weight or 0:.1f} BM25, scores standardised per "
        "query; weight chosen by nDCG@10 on split dev",
        False: "from_seed+bm25: reciprocal ranks, the sum of 1 / (60 + rank); no split dev other than the evaluated "
        "one to choose a weight on",
    }
    assert printed[7] == rules[dev]

    evaluate.main(arguments(folder, out, "--bm25", *models))
    alone = json.loads(out.read_text())  # without --fuse: the same numbers, no other keys
    of_both = alone.pop("pairs_of_systems")
    assert [pair["systems"] for pair in of_both] == list(
        map(list, combinations(["bm25", "from_random", "from_seed"], 2))
    )
    others = ("fused", "p_value_bm25", "fusion", "pairs_of_systems")
    assert alone == {key: value for key, value in results.items() if key not in others}
    assert "fuse" not in capsys.readouterr().out


def test_two_encoders_are_fused_and_compared_with_nothing(
    runs: dict[str, Path], with_dev: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [f"--model=a+b={runs['one']}", f"--model=c={runs['two']}"]
    evaluate.main(arguments(with_dev, tmp_path / "r.json", *models, "--fuse=c+a+b", "--fuse-split=train"))
    results = json.loads((tmp_path / "r.json").read_text())
    assert results["p_value_bm25"] is None
    assert results["fusion"]["systems"] == ["c", "a+b"]
    assert results["fusion"]["split"] == "train"
    assert "BM25" not in capsys.readouterr().out


def test_no_weight_is_chosen_on_the_evaluated_split(runs: dict[str, Path], with_dev: Path, tmp_path: Path) -> None:
    given = ["--collection", str(with_dev), "--split", "dev", "--out", str(tmp_path / "r.json"), "--bm25"]
    evaluate.main([*given, f"--model=m={runs['one']}", "--fuse=bm25+m"])
    results = json.loads((tmp_path / "r.json").read_text())
    assert results["fusion"] == {
        "systems": ["bm25", "m"],
        "rule": "reciprocal ranks",
        "weight": None,
        "split": None,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--bm25", "--fuse=bm25+x"],
            "--fuse bm25+x: write two different systems of this command as NAME+NAME; it has",
        ),
        (["--bm25", "--fuse=bm25+x"], "it has bm25, m\n"),
        (["--fuse=bm25+m"], "it has m (bm25 needs --bm25)"),
        (["--bm25", "--fuse=m+m"], "two different systems"),
        (["--bm25", "--fuse=m"], "NAME+NAME"),
        (["--bm25", "--fuse="], "NAME+NAME"),
        (["--bm25", "--fuse=bm25+m", "--fuse-split=dev"], "no split 'dev'; choose one of: test, train"),
        (
            ["--bm25", "--fuse=bm25+m", "--fuse-split=test"],
            "--fuse-split test: the weight would be chosen on the queries",
        ),
        (["--bm25", "--fuse-split=train"], "--fuse-split train: give --fuse or a pipeline with +MODEL, too"),
        (["--model=fused=x"], "the name 'fused' is taken"),
        (["--model=fusion=x"], "the name 'fusion' is taken"),
        (["--model=p_value_bm25=x"], "the name 'p_value_bm25' is taken"),
    ],
)
def test_a_fusion_that_cannot_be_made_is_refused_before_anything_is_ranked(
    runs: dict[str, Path],
    toy_collection: Path,
    tmp_path: Path,
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("compare", "load_any"):
        monkeypatch.setattr(evaluate, name, Mock(side_effect=AssertionError(name)))
    given = arguments(toy_collection, tmp_path / "r.json", f"--model=m={runs['one']}", *options)
    assert words in refusal(capsys, given)


def refusal(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    with pytest.raises(SystemExit) as exit_:
        evaluate.main(argv)
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert not printed.out
    return printed.err


def test_refusals(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.json"
    assert "nothing to evaluate" in refusal(capsys, arguments(toy_collection, out))
    assert "NAME=RUN" in refusal(capsys, arguments(toy_collection, out, "--model=x"))
    assert "'queries' is taken" in refusal(capsys, arguments(toy_collection, out, f"--model=queries={runs['one']}"))
    twice = [f"--model=a={runs['one']}"] * 2
    assert "'a' is taken" in refusal(capsys, arguments(toy_collection, out, *twice))
    assert "fine-tune it first" in refusal(capsys, arguments(toy_collection, out, f"--model=a={runs['seed']}"))
    assert "train it first" in refusal(capsys, arguments(toy_collection, out, f"--model=a={tmp_path}"))
    no_split = [*arguments(toy_collection, out, "--bm25"), "--split", "dev"]
    assert "no split 'dev'; choose one of: test, train" in refusal(capsys, no_split)
    assert not out.exists()


@pytest.mark.parametrize("out", ["", "."])
def test_a_folder_for_the_results_is_refused_before_anything_is_ranked(
    toy_collection: Path, tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate, "compare", Mock(side_effect=AssertionError("ranked")))
    error = refusal(capsys, arguments(toy_collection, Path(out) if out else tmp_path, "--bm25"))
    assert "is a folder: name a file, in it or elsewhere" in error


def test_another_tokenizer_is_refused(runs: dict[str, Path], toy_collection: Path, tmp_path: Path) -> None:
    other = tokenizers.train(["another set of words"] * 3, 80, tmp_path / "tokenizer.json")
    shutil.copytree(toy_collection, tmp_path / "other")
    build("beir", [tmp_path / "other"], tmp_path / "other", other)
    trained, tokenizer = load_trained(runs["one"]), r"--tokenizer .*/step-.*/tokenizer.json$"
    in_place = f"another tokenizer than .*: run: python -m data_prep collection {tmp_path / 'other'} {tokenizer}"
    with pytest.raises(InputError, match=in_place):
        evaluate_split(ranker_of(trained, Collection.open(tmp_path / "other")), "test")
    elsewhere = build("beir", [tmp_path / "other"], tmp_path / "built", other)
    command = f"run: python -m data_prep collection FORMAT INPUT... --out {tmp_path / 'built'} {tokenizer}"
    with pytest.raises(InputError, match=command):
        evaluate_split(ranker_of(trained, elsewhere), "test")


def test_a_missing_package_is_named(
    toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("data_prep.common.extras.find_spec", lambda name: None if name == "bm25s" else object())
    error = refusal(capsys, arguments(toy_collection, tmp_path / "r.json", "--bm25"))
    assert "bm25s" in error
    assert "pip install 'deepsiam[evaluate]'" in error
