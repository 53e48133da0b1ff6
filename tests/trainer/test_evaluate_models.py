"""trainer.evaluate with every kind of model: several vectors per text, pairs; candidate lists and classes."""

import json
import re
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from data_prep.collections.collection import Collection
from models.registry import MATCHING
from tests.trainer.ranking.retrieval.fakes import overlap_run, plain_scores, positions, ranked_as, tokens_run
from tests.trainer.ranking.retrieval.small_collections import candidate_lists, labelled_pairs
from tests.trainer.runs import write_run
from trainer import evaluate
from trainer.ranking.evaluation.candidate_lists import CandidateTask
from trainer.ranking.evaluation.metrics import LIST_HEADINGS
from trainer.ranking.evaluation.rerank import rerank_task
from trainer.ranking.evaluation.task import Task
from trainer.ranking.rankers.bm25 import Bm25Ranker
from trainer.ranking.rankers.registry import ranker_of
from trainer.training.checkpoints.load import TrainedModel, load_trained

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
KEYS: dict[str, dict[str, Any]] = {  # what a model needs besides its name, or for texts of these lengths
    "cross_encoder": {"negatives_per_query": 1},
    "cross_thought_answers": {"negatives_per_query": 1},
    "poly_encoder": {"m": 4},
}
LOSSES = {name: get_args(config.model_fields["loss"].annotation) for name, config in MATCHING.items()}
RANK = [name for name, losses in LOSSES.items() if losses != ("classes",)]
CLASSIFY = [name for name, losses in LOSSES.items() if "classes" in losses]
METRICS = {"mrr@10", "ndcg@10", "recall@100"}


@pytest.fixture(scope="module")
def opened(toy_collection: Path) -> Collection:
    return Collection.open(toy_collection)


@pytest.fixture(scope="module")
def lists(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists") / "c"
    return candidate_lists(folder, toy_collection / "tokenizer.json").directory


@pytest.fixture(scope="module")
def pairs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "c"
    return labelled_pairs(folder, toy_collection / "tokenizer.json").directory


@pytest.fixture
def models(opened: Collection, monkeypatch: pytest.MonkeyPatch) -> dict[str, TrainedModel]:
    """Models that `--model NAME=NAME` names."""
    named = {"tokens": tokens_run(opened), "overlap": overlap_run(opened), "told": overlap_run(opened, classes=3)}
    monkeypatch.setattr(evaluate, "load_any", lambda run: named[str(run)])
    return named


def run(collection: Path, out: Path, *options: str) -> dict[str, Any]:
    evaluate.main(["--collection", str(collection), "--split", "test", "--out", str(out), *options])
    results: dict[str, Any] = json.loads(out.read_text())
    return results


def refusal(capsys: pytest.CaptureFixture[str], collection: Path, out: Path, *options: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        run(collection, out, *options)
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert not out.exists()
    return printed.err


@pytest.mark.parametrize("name", RANK)
def test_every_matching_model_ranks_the_pool(
    name: str, toy_collection: Path, opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"name": name, **LENGTHS, **KEYS.get(name, {})}
    path = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **keys)
    results = run(toy_collection, tmp_path / "r.json", f"--model=m={path}")
    trained, task = load_trained(path), Task.of(opened, "test")
    again = trained.model.kind in ("pairs", "lists")
    found = (
        positions(Bm25Ranker(task.collection).system(task).rank(100))
        if again
        else [list(range(len(task.pool)))] * len(task.queries)
    )
    ranked = []
    for query, documents in zip(task.queries, found, strict=True):
        scores = plain_scores(trained, opened, query, [task.pool[i] for i in documents])
        of_position = dict(zip(documents, scores.tolist(), strict=True))
        ranked.append(ranked_as(sorted(documents, key=lambda i, of=of_position: (-of[i], i))[:100]))
    assert results["m"] == pytest.approx(task.measure(ranked).means)
    assert results["m"]["recall@100"] > 0.5  # chance is 100 of 120
    assert ("rerank" in results) == again
    assert results["max_tokens"]["m"].items() >= {"query": 8, "document": 16}.items()
    assert capsys.readouterr().out.splitlines()[1].startswith("m on the first 100 of BM25  " if again else "m  ")


@pytest.mark.parametrize("name", RANK)
def test_every_matching_model_ranks_candidate_lists(name: str, lists: Path, tmp_path: Path) -> None:
    keys = {"name": name, **LENGTHS, **KEYS.get(name, {})}
    path = write_run(tmp_path / "run", lists / "tokenizer.json", **keys)
    results = run(lists, tmp_path / "r.json", "--candidates", f"--model=m={path}")
    task, trained = CandidateTask.of(Collection.open(lists), "test"), load_trained(path)
    scores = [
        plain_scores(trained, task.collection, task.queries[query], [task.pool[i] for i in positions])
        for query, positions in task.lists
    ]
    expected = task.measure(scores).means
    assert results["m"] == pytest.approx(expected)
    assert 0 < expected["mrr"] < 1


@pytest.mark.parametrize("name", CLASSIFY)
def test_every_model_of_classes_tells_them(name: str, pairs: Path, tmp_path: Path) -> None:
    keys = {"name": name, "loss": "classes", "classes": 3, **LENGTHS}
    path = write_run(tmp_path / "run", pairs / "tokenizer.json", **keys)
    results = run(pairs, tmp_path / "r.json", "--classes", f"--model=m={path}")
    trained, opened = load_trained(path), Collection.open(pairs)
    groups = [opened.groups("test")[i] for i in range(60)]
    queries = [opened.queries.tokens(group.query) for group in groups]
    documents = [opened.corpus.tokens(int(group.candidates[0])) for group in groups]
    arrays = trained.recipe.method.pair_framing(trained.tokenizer).arrays(queries, documents)
    with torch.no_grad():
        logits = trained.model.score_pairs(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    right = logits.argmax(dim=1).numpy() == [int(group.labels[0]) for group in groups]
    assert results["m"]["accuracy"] == pytest.approx(right.mean())
    assert results["majority_class"] == "neutral"


def test_the_best_chunk_of_a_document_counts(
    toy_collection: Path, opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(
        tmp_path / "run",
        toy_collection / "tokenizer.json",
        name="siamese",
        document_chunks=2,
        pooling="mean",
        **LENGTHS,
    )
    results = run(toy_collection, tmp_path / "r.json", f"--model=m={path}")
    trained = load_trained(path)
    t, qrels = trained.tokenizer, opened.qrels("test")

    def embed(tokens: np.ndarray) -> torch.Tensor:
        ids = torch.tensor([[t.cls, *tokens.tolist(), t.sep]])
        return trained.model.embed_queries(ids, torch.ones_like(ids, dtype=torch.bool)).vectors[0, 0]

    with torch.no_grad():
        chunks = [
            [embed(text[at : at + 14]) for at in (0, 14) if at < len(text)]
            for text in (opened.corpus.tokens(i) for i in range(len(opened.corpus)))
        ]
        queries = [embed(opened.queries.tokens(i)[:6]) for i in opened.queries.ids.find([*qrels])]
        scores = torch.tensor([[max(float(q @ chunk) for chunk in own) for own in chunks] for q in queries])
    assert {len(own) for own in chunks} == {1, 2}
    order = scores.argsort(dim=1, descending=True)[:, :10].tolist()
    ranks = [
        next((1 / rank for rank, i in enumerate(row, 1) if opened.corpus.ids[i] in judged), 0.0)
        for row, judged in zip(order, qrels.values(), strict=True)
    ]
    assert results["m"]["mrr@10"] == pytest.approx(np.mean(ranks))
    assert 0 < np.mean(ranks) < 1
    assert results["max_tokens"]["m"] == {"query": 8, "document": 32}  # in two chunks of 16 tokens
    assert "encoders read the first 8/32 tokens of queries/documents" in capsys.readouterr().out


def test_a_model_of_several_vectors_is_fused(
    models: dict[str, TrainedModel], toy_collection: Path, tmp_path: Path
) -> None:
    results = run(toy_collection, tmp_path / "r.json", "--bm25", "--model=tokens=tokens", "--fuse=bm25+tokens")
    assert results["fusion"]["rule"] == "reciprocal ranks"
    assert results["fused"].keys() == METRICS


def test_a_model_that_reads_pairs_ranks_bm25s_first_100_again(
    models: dict[str, TrainedModel], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(toy_collection, tmp_path / "r.json", "--model=overlap=overlap")
    assert "bm25" not in results
    assert results["rerank"] == {"overlap": {"system": "bm25", "documents": 100}}
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("overlap on the first 100 of BM25  ")
    assert lines[-1].startswith("BM25: Lucene")
    with_bm25 = run(toy_collection, tmp_path / "r.json", "--bm25", "--model=overlap=overlap", "--rerank=bm25:100")
    new = {name: with_bm25[name] for name in ("bm25", "pairs_of_systems")}
    assert with_bm25 == {**results, **new}
    assert with_bm25["bm25"]["recall@100"] == results["overlap"]["recall@100"]


def test_another_model_is_ranked_again_wherever_it_is_named(
    models: dict[str, TrainedModel], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--model=overlap=overlap", "--model=tokens=tokens"]
    results = run(toy_collection, tmp_path / "r.json", *both, "--rerank=tokens:120")
    assert list(results)[:2] == ["overlap", "tokens"]
    assert results["p_value"] is not None
    assert capsys.readouterr().out.splitlines()[1].startswith("overlap on the first 120 of tokens  ")
    one = run(toy_collection, tmp_path / "r.json", *both, "--rerank=tokens:1")
    assert one["overlap"] == one["tokens"]  # re-ranking one document changes nothing
    assert one["tokens"] == results["tokens"]
    assert results["overlap"] != one["overlap"]


def test_pipelines_rank_again_and_again(
    models: dict[str, TrainedModel],
    toy_collection: Path,
    opened: Collection,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = ["--model=overlap=overlap", "--model=tokens=tokens"]
    one = run(toy_collection, tmp_path / "1.json", "--pipeline=p=bm25:30,overlap", "--model=overlap=overlap")
    assert "overlap" not in one  # it is not evaluated alone
    assert "bm25" not in one  # it was not requested
    alone = run(toy_collection, tmp_path / "2.json", "--model=overlap=overlap", "--rerank=bm25:30")
    assert one["p"] == alone["overlap"]
    capsys.readouterr()
    lines = ["--pipeline=long=bm25:40,tokens:7,overlap", "--pipeline=short=tokens:1,overlap", "--bm25"]
    results = run(toy_collection, tmp_path / "3.json", *both, *lines)
    assert list(results)[:4] == ["bm25", "tokens", "long", "short"]
    assert results["short"] == results["tokens"]  # re-ranking one document changes nothing
    assert results["pipelines"]["long"]["stages"] == ["bm25:40", "tokens:7", "overlap"]
    assert len(results["pipelines"]["long"]["seconds"]) == 3
    assert results["p_value"] is not None  # between the two pipelines
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:5]] == ["BM25", "tokens", "long", "short"]
    took = re.compile("long: bm25:40 [0-9.]+ s, then tokens:7 [0-9.]+ s, then overlap [0-9.]+ s")
    assert any(took.fullmatch(line) for line in printed)

    task = Task.of(opened, "test")
    again = rerank_task(
        ranker_of(models["tokens"], opened), task, Bm25Ranker(task.collection).system(task).rank(100), 40
    )
    again = rerank_task(ranker_of(models["overlap"], opened), task, again, 7)
    assert results["long"] == task.measure(again).means


def test_an_interpolated_pipeline_takes_its_weight_from_another_split(
    models: dict[str, TrainedModel],
    toy_collection: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--bm25", "--model=overlap=overlap", "--pipeline=p=bm25:30,+overlap"]
    results = run(toy_collection, tmp_path / "1.json", *options, "--fuse-split=train")
    about = results["pipelines"]["p"]
    (weight,) = about["weights"]
    assert about["stages"] == ["bm25:30", "+overlap"]
    assert about["split"] == "train"
    lines = capsys.readouterr().out.splitlines()
    rule = f"p: {1 - weight:.1f} found + {weight:.1f} overlap, scores standardised per query; weight chosen by nDCG@10"
    assert f"{rule} on split train" in lines
    assert any(
        line.startswith(f"MRR@10: p {results['p']['mrr@10']:.4f} against BM25")
        and f"{about['p_value_bm25']:.4f}" in line
        for line in lines
    )
    fused = ["--model=tokens=tokens", "--pipeline=q=bm25:30,tokens", "--fuse=bm25+tokens"]
    assert "tokens" in run(toy_collection, tmp_path / "3.json", *options, *fused)
    capsys.readouterr()
    without = run(toy_collection, tmp_path / "2.json", *options)["pipelines"]["p"]  # the collection has no split dev
    assert (without["weights"], without["split"]) == ([None], None)
    assert any(line.startswith("p: reciprocal ranks") for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("p", "write NAME=SYSTEM:K,MODEL"),
        ("p=bm25:10", "write NAME=SYSTEM:K,MODEL"),
        ("p=bm25,tokens", "'' is not a system of this command: bm25, overlap, tokens"),
        ("p=bm25:0,tokens", "K in NAME:K is a number of documents"),
        ("p=bm25:x,tokens", "K in NAME:K is a number of documents"),
        ("p=other:5,tokens", "'other' is not a system of this command"),
        ("p=tokens:5,bm25", "'bm25' is not a model of this command: overlap, tokens"),
        ("p=bm25:5,tokens:3", "'tokens:3' is not a model of this command"),
        ("p=bm25:5,+other", "'other' is not a model of this command"),
        ("p=+bm25:5,tokens", "'+bm25' is not a system of this command"),
        ("tokens=bm25:5,overlap", "the name 'tokens' is taken"),
        ("pipelines=bm25:5,overlap", "the name 'pipelines' is taken"),
        ("p=overlap:5,tokens", "overlap cannot search: begin with another"),
    ],
)
def test_a_pipeline_that_cannot_be_made_is_refused(
    models: dict[str, TrainedModel],
    toy_collection: Path,
    tmp_path: Path,
    given: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = ["--model=overlap=overlap", "--model=tokens=tokens"]
    line = refusal(capsys, toy_collection, tmp_path / "r.json", *both, f"--pipeline={given}")
    assert line.startswith("trainer.evaluate: ")
    assert f"--pipeline {given}: " in line
    assert message in line


def test_what_cannot_be_ranked_again_is_refused_before_anything_is_ranked(
    models: dict[str, TrainedModel],
    toy_collection: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("index_task", "embed_task"):
        monkeypatch.setattr(f"trainer.ranking.evaluation.compare.{name}", Mock(side_effect=AssertionError(name)))
    overlap, tokens = "--model=overlap=overlap", "--model=tokens=tokens"

    def refused(*options: str) -> str:
        return refusal(capsys, toy_collection, tmp_path / "r.json", *options)

    assert "--rerank x:10: write NAME:K, with a system of this command: bm25, overlap" in refused(
        overlap, "--rerank=x:10"
    )
    assert "--rerank bm25: write NAME:K" in refused(overlap, "--rerank=bm25")
    for k in ("", "0", "-1", "1.5", "ten", "1" * 5000, "\u0663"):
        assert "K in NAME:K is a number of documents, 1 or more" in refused(overlap, f"--rerank=bm25:{k}")
    assert "overlap only re-ranks: name bm25, or a model that searches" in refused(overlap, "--rerank=overlap:10")
    assert "--rerank bm25:10: every model of this command can search" in refused(tokens, "--rerank=bm25:10")
    fused = refused("--bm25", overlap, "--fuse=bm25+overlap")
    assert "--fuse bm25+overlap: overlap scores only the documents that it re-ranks: fuse two systems" in fused
    assert "predicts classes and gives no score to rank by: evaluate with --classes" in refused("--model=told=told")
    assert "the name 'rerank' is taken" in refused("--model=rerank=x")


def test_a_table_of_candidate_lists(
    models: dict[str, TrainedModel], lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--model=tokens=tokens", "--model=overlap=overlap"]
    results = run(lists, tmp_path / "r.json", "--candidates", "--bm25", *both)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["R@1/6", "R@2/6", "R@5/6", "MRR", "MAP"]
    for line, name, title in zip(lines[1:4], results, ["BM25", *models], strict=False):
        assert line.split() == [title, *(f"{results[name][metric]:.4f}" for metric in LIST_HEADINGS)]
    assert lines[4].startswith(f"MRR: overlap {results['overlap']['mrr']:.4f} against tokens ")
    assert f"p = {results['p_value']:.4f}" in lines[4]
    assert lines[5] == (
        "38 lists of 6 candidates, 228 different documents; equal scores rank in an order drawn once for all systems; "
        "2 without a relevant document are left out, as by trec_eval"
    )


def test_a_table_of_classes(
    models: dict[str, TrainedModel], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(pairs, tmp_path / "r.json", "--classes", "--model=told=told", "--model=again=told")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["accuracy"]
    assert lines[1].split() == ["always", "neutral", f"{results['majority']['accuracy']:.4f}"]
    assert lines[2].split() == ["told", f"{results['told']['accuracy']:.4f}"]
    assert "p = 1.0000" in lines[4]
    assert lines[5] == "60 labelled pairs, 3 classes"


def test_options_that_do_not_go_together_are_refused(
    models: dict[str, TrainedModel],
    toy_collection: Path,
    lists: Path,
    pairs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(collection: Path, *options: str) -> str:
        return refusal(capsys, collection, tmp_path / "r.json", *options)

    told, tokens = "--model=told=told", "--model=tokens=tokens"
    assert "leave out one" in refused(lists, "--candidates", "--classes", tokens)
    assert "--rerank is for rankings of the whole pool: leave it out, or --candidates" in refused(
        lists, "--candidates", tokens, "--rerank=bm25:3"
    )
    assert "--fuse is for rankings" in refused(lists, "--candidates", "--bm25", tokens, "--fuse=bm25+tokens")
    assert "--fuse-split is for rankings" in refused(lists, "--candidates", tokens, "--fuse-split=dev")
    assert "--bm25 does not predict classes: leave it out, or --classes" in refused(pairs, "--classes", "--bm25", told)
    assert "no candidate lists" in refused(toy_collection, "--candidates", tokens)
    assert "its labels are classes" in refused(pairs, "--candidates", tokens)
    assert "its labels are not classes" in refused(lists, "--classes", told)
    assert "does not predict classes" in refused(pairs, "--classes", tokens)
    assert "another tokenizer" in refused_of_another_tokenizer(models, lists, tmp_path, capsys)


def refused_of_another_tokenizer(
    models: dict[str, TrainedModel], lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    from dataclasses import replace

    tokenizer = replace(models["overlap"].tokenizer, fingerprint="another")
    models["overlap"] = replace(models["overlap"], tokenizer=tokenizer)
    return refusal(capsys, lists, tmp_path / "r.json", "--candidates", "--model=overlap=overlap")
