"""trainer.evaluate with every kind of model: several vectors per text, pairs; candidate lists and classes."""

import json
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.models.registry import MATCHING
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.evaluation.candidate_lists import CandidateTask
from deepsiam.trainer.ranking.evaluation.metrics import LIST_HEADINGS
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.rankers import registry
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.multi_vector import MultiVectorRanker
from deepsiam.trainer.ranking.rankers.pairs import PairRanker
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests import toy
from tests.trainer.ranking.retrieval.fakes import overlap_run, plain_scores, positions, ranked_as, tokens_run
from tests.trainer.ranking.retrieval.small_collections import candidate_lists, labelled_pairs
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
KEYS: dict[str, dict[str, Any]] = {  # what a model needs besides its name, or for texts of these lengths
    "cross_encoder": {"negatives_per_query": 1},
    "cross_thought_answers": {"negatives_per_query": 1},
    "duobert": {"negatives_per_query": 1},
    "label_ranker": {"negatives_per_query": 2, **toy.PROMPT},
    "poly_encoder": {"m": 4},
}
LOSSES = {name: get_args(config.model_fields["loss"].annotation) for name, config in MATCHING.items()}
RANK = [name for name, losses in LOSSES.items() if losses != ("classes",)]
CLASSIFY = [name for name, losses in LOSSES.items() if "classes" in losses]
DEPTH = 10  # documents that a model re-ranks; duoBERT compares every two of them


@pytest.fixture(scope="module")
def lists(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return candidate_lists(tmp_path_factory.mktemp("lists") / "c", toy_collection / "tokenizer.json").directory


@pytest.fixture(scope="module")
def pairs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled_pairs(tmp_path_factory.mktemp("pairs") / "c", toy_collection / "tokenizer.json").directory


@pytest.fixture(scope="module", params=RANK)
def path(request: pytest.FixtureRequest, toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each model that ranks."""
    keys = {"name": request.param, **LENGTHS, **KEYS.get(request.param, {})}
    return write_run(tmp_path_factory.mktemp(request.param) / "run", toy_collection / "tokenizer.json", **keys)


@pytest.fixture
def models(opened: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, TrainedModel]:
    """Models in folders of their names, in the working directory."""
    named = {"tokens": tokens_run(opened), "overlap": overlap_run(opened), "told": overlap_run(opened, classes=3)}
    monkeypatch.chdir(tmp_path)
    for name in named:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(registry, "load_any", lambda run: named[run.name])
    return named


def run(collection: Path, out: Path, *options: str) -> dict[str, Any]:
    evaluate.main(["--collection", str(collection), "--split", "test", "--out", str(out), *options])
    results: dict[str, Any] = json.loads(out.read_text())
    return results


def means(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The metrics of each system."""
    return {name: system["metrics"] for name, system in results["systems"].items()}


def test_every_matching_model_ranks_the_pool(
    path: Path, toy_collection: Path, opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained, task = load_trained(path), Task.of(opened, "test")
    again = not registry.RANKERS[trained.model.kind].searches
    first = f"bm25 > {DEPTH} " if again else ""
    results = run(toy_collection, tmp_path / "r.json", f"--system=m={first}{path}")
    found = [list(range(len(task.pool)))] * len(task.queries)
    if again:
        found = positions(Bm25Ranker(task.collection).system(task).rank(DEPTH))
    ranked = []
    for query, documents in zip(task.queries, found, strict=True):
        scores = plain_scores(trained, opened, query, [task.pool[i] for i in documents])
        of_position = dict(zip(documents, scores.tolist(), strict=True))
        ranked.append(ranked_as(sorted(documents, key=lambda i, of=of_position: (-of[i], i))[:100]))
    assert means(results)["m"] == pytest.approx(task.measure(ranked).means)
    assert means(results)["m"]["recall@100"] > 0.5  # chance is 100 of 120, or DEPTH of 120
    last = results["systems"]["m"]["stages"][-1]
    assert last["max_tokens"].items() >= {"query": 8, "document": 16}.items()
    assert last.get("depth") == (DEPTH if again else None)
    assert capsys.readouterr().out.splitlines()[1].startswith("m  ")


def test_every_matching_model_ranks_candidate_lists(path: Path, lists: Path, tmp_path: Path) -> None:
    results = run(lists, tmp_path / "r.json", "--candidates", f"--system=m={path}")
    task, trained = CandidateTask.of(Collection.open(lists), "test"), load_trained(path)
    scores = [
        plain_scores(trained, task.collection, task.queries[query], [task.pool[i] for i in documents])
        for query, documents in task.lists
    ]
    expected = task.measure(scores).means
    assert means(results)["m"] == pytest.approx(expected)
    assert 0 < expected["mrr"] < 1


@pytest.mark.parametrize("name", CLASSIFY)
def test_every_model_of_classes_tells_them(name: str, pairs: Path, tmp_path: Path) -> None:
    keys = {"name": name, "loss": "classes", "classes": 3, **LENGTHS}
    path = write_run(tmp_path / "run", pairs / "tokenizer.json", **keys)
    results = run(pairs, tmp_path / "r.json", "--classes", f"--system=m={path}")
    trained, opened = load_trained(path), Collection.open(pairs)
    groups = [opened.groups("test")[i] for i in range(60)]
    queries = [opened.queries.tokens(group.query) for group in groups]
    documents = [opened.corpus.tokens(int(group.candidates[0])) for group in groups]
    arrays = trained.recipe.method.pair_framing(trained.tokenizer).arrays(queries, documents)
    with torch.no_grad():
        logits = trained.model.score_pairs(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    right = logits.argmax(dim=1).numpy() == [int(group.labels[0]) for group in groups]
    assert means(results)["m"]["accuracy"] == pytest.approx(right.mean())


def test_the_best_chunk_of_a_document_counts(
    toy_collection: Path, opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"name": "siamese", "document_chunks": 2, "pooling": "mean", **LENGTHS}
    path = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **keys)
    results = run(toy_collection, tmp_path / "r.json", f"--system=m={path}")
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
    assert means(results)["m"]["mrr@10"] == pytest.approx(np.mean(ranks))
    assert 0 < np.mean(ranks) < 1
    (stage,) = results["systems"]["m"]["stages"]
    assert stage["max_tokens"] == {"query": 8, "document": 32}  # in two chunks of 16 tokens
    assert "encoders read the first 8/32 tokens of queries/documents" in capsys.readouterr().out


def test_each_distinct_part_is_evaluated_once(
    models: dict[str, TrainedModel], toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BM25 is indexed once, the pool is encoded once, and pairs are scored once."""
    spies = []
    for kind, name in ((Bm25Ranker, "system"), (MultiVectorRanker, "system"), (PairRanker, "scores")):
        spies.append(spy := Mock(side_effect=getattr(kind, name)))
        monkeypatch.setattr(kind, name, lambda *given, spy=spy: spy(*given))
    opened_once = Mock(side_effect=registry.load_any)
    monkeypatch.setattr(registry, "load_any", opened_once)
    systems = [
        "first=bm25 > 20 overlap",
        "both=fuse(first, tokens)",
        "again=fuse(bm25 > 20 overlap, tokens) > 5 bm25",
        "tokens",
        "last=bm25 > 9 +tokens",
        "nested=fuse(fuse(bm25, tokens), fuse(tokens, bm25 > 20 overlap))",
    ]
    results = run(toy_collection, tmp_path / "r.json", *(f"--system={system}" for system in systems))
    assert [spy.call_count for spy in (*spies, opened_once)] == [1, 1, 1, 2]
    for name, text in (system.split("=") for system in systems if "=" in system):
        if "first" not in text:
            alone = run(toy_collection, tmp_path / "alone.json", f"--system={name}={text}")
            assert means(alone)[name] == pytest.approx(means(results)[name])


def test_an_interpolated_stage_takes_its_weight_from_another_split(
    models: dict[str, TrainedModel], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["--system=p=bm25 > 30 +overlap(split=train)", "--system=q=bm25 > 30 +overlap"]
    results = run(toy_collection, tmp_path / "r.json", "--system=bm25", *systems)
    _, about = results["systems"]["p"]["stages"]
    assert (about["stage"], about["split"]) == ('> 30 +"overlap"(split=train)', "train")
    weight = about["weight"]
    lines = capsys.readouterr().out.splitlines()
    rule = f'p: {1 - weight:g} found + {weight:g} "overlap", scores standardised per query; weight chosen by nDCG@10'
    assert f"{rule} on split train" in lines
    assert not results["systems"]["q"]["stages"][1].keys() & {"weight", "split"}  # there is no split dev
    assert any(line.startswith("q: reciprocal ranks") for line in lines)


def test_a_table_of_candidate_lists(
    models: dict[str, TrainedModel], lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["--system=bm25", "--system=tokens", "--system=overlap"]
    results = run(lists, tmp_path / "r.json", "--candidates", *systems)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["R@1/6", "R@2/6", "R@5/6", "MRR", "MAP"]
    found = means(results)
    for line, name, title in zip(lines[1:4], found, ["BM25", *models], strict=False):
        assert line.split() == [title, *(f"{found[name][metric]:.4f}" for metric in LIST_HEADINGS)]
    assert lines[4].startswith(f"MRR: overlap {found['overlap']['mrr']:.4f} against tokens ")
    assert f"p = {results['pairs'][-1]['p_value']:.4f}" in lines[4]
    assert lines[5] == (
        "38 lists of 6 candidates, 228 different documents; "
        "documents with equal scores rank in one random order, the same for every system; "
        "2 without a relevant document are left out, as by trec_eval"
    )


def test_a_table_of_classes(
    models: dict[str, TrainedModel], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(pairs, tmp_path / "r.json", "--classes", "--system=told", "--system=again=told")
    shares = results["about"]["classes"]["shares"]
    assert shares["neutral"] == max(shares.values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["accuracy"]
    assert lines[1].split() == ["always", "neutral", f"{shares['neutral']:.4f}"]
    assert lines[2].split() == ["told", f"{means(results)['told']['accuracy']:.4f}"]
    assert "p = 1.0000" in lines[4]
    assert lines[5] == "60 labelled pairs, 3 classes"
