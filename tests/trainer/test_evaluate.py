"""The evaluation's numbers, its table and file, and what it refuses."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from data_prep import tokenizer as tokenizers
from data_prep.collection import Collection, tokenize
from data_prep.errors import InputError
from tests.trainer.runs import STEP, write_run
from trainer import evaluate
from trainer.trained import load

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
    """All texts in one batch, all scores in one matrix, MRR@10 by hand."""
    trained = load(run)
    t, qrels = trained.tokenizer, collection.qrels("test")

    def embed(texts: list[np.ndarray], longest: int) -> torch.Tensor:
        ids = torch.full((len(texts), longest), t.pad)
        for row, tokens in zip(ids, texts, strict=True):
            framed = [t.cls, *tokens[: longest - 2].tolist(), t.sep]
            row[: len(framed)] = torch.tensor(framed)
        with torch.no_grad():
            return trained.model.encode(ids, ids != t.pad)

    documents = embed([collection.corpus.tokens(i) for i in range(len(collection.corpus))], 16)
    queries = embed([collection.queries.tokens(collection.queries.index[query]) for query in qrels], 8)
    order = (queries @ documents.T).argsort(dim=1, descending=True, stable=True)[:, :10]
    found = []
    for row, judged in zip(order, qrels.values(), strict=True):
        hits = [rank for rank, i in enumerate(row, 1) if collection.corpus.ids[i] in judged]
        found.append(1 / hits[0] if hits else 0.0)
    return found


@pytest.mark.parametrize("name", ["one", "two"])
def test_metrics_are_those_of_a_plain_loop(runs: dict[str, Path], toy_collection: Path, name: str) -> None:
    collection = Collection.open(toy_collection)
    found = evaluate.evaluate_run(load(runs[name]), collection, "test")
    expected = plain_reciprocal_ranks(runs[name], collection)
    np.testing.assert_allclose(found.values["mrr@10"], expected)
    assert 0 < sum(expected) < len(expected)
    assert found.means["recall@100"] >= found.means["mrr@10"]


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
    assert "20 queries over 120 documents; equal scores rank in corpus order" in printed[5]
    assert "k1=" in printed[6]


def test_one_model_has_no_p_value(runs: dict[str, Path], toy_collection: Path, tmp_path: Path) -> None:
    evaluate.main(arguments(toy_collection, tmp_path / "r.json", f"--model=m={runs['one']}"))
    results = json.loads((tmp_path / "r.json").read_text())
    assert results["p_value"] is None
    assert "bm25" not in results


def test_the_pool_is_ranked_in_corpus_order(toy_collection: Path, tmp_path: Path) -> None:
    """Every document alike: all tie, and the tie rule must not favour what a pool file names first."""
    folder = tmp_path / "alike"
    shutil.copytree(toy_collection, folder)
    records = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({**r, "text": "same"}) + "\n" for r in records))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td3\t1\n")
    (folder / "pools").mkdir()
    (folder / "pools" / "test.txt").write_text("d3\nd7\nd1\nd0\n")
    tokenize(folder, tokenizers.load(toy_collection / "tokenizer.json"))
    run = write_run(tmp_path / "run", folder / "tokenizer.json", **SIAMESE)
    found = evaluate.evaluate_run(load(run), Collection.open(folder), "test")
    assert found.means["mrr@10"] == 1 / 3  # after d0 and d1


def refusal(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    with pytest.raises(SystemExit) as exit_:
        evaluate.main(argv)
    assert exit_.value.code == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert not said.out
    return said.err


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
    assert "no split 'dev'; there are: test, train" in refusal(capsys, no_split)
    assert not out.exists()


@pytest.mark.parametrize("out", ["", "."])
def test_a_folder_for_the_results_is_refused_before_anything_is_ranked(
    toy_collection: Path, tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate, "compare", Mock(side_effect=AssertionError("ranked")))
    said = refusal(capsys, arguments(toy_collection, Path(out) if out else tmp_path, "--bm25"))
    assert "is a folder: name a file, in it or elsewhere" in said


def test_another_tokenizer_is_refused(runs: dict[str, Path], toy_collection: Path, tmp_path: Path) -> None:
    other = tokenizers.train(["another set of words"] * 3, 80, tmp_path / "tokenizer.json")
    shutil.copytree(toy_collection, tmp_path / "other")
    tokenize(tmp_path / "other", other)
    with pytest.raises(InputError, match="another tokenizer"):
        evaluate.evaluate_run(load(runs["one"]), Collection.open(tmp_path / "other"), "test")


def test_a_missing_package_is_named(
    toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainer.extras.find_spec", lambda name: None if name == "bm25s" else object())
    said = refusal(capsys, arguments(toy_collection, tmp_path / "r.json", "--bm25"))
    assert "bm25s" in said
    assert "pip install 'deepsiam[evaluate]'" in said
