"""Rankers of one vector, of terms, words, likelihoods, lists, and that of examples/: against plain sums and models."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common import extras
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.vectors import Vectors
from deepsiam.registry import import_named
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import read_systems
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.task import Task, evaluate_split
from deepsiam.trainer.ranking.mining import mine, mining_texts
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.ranking.rankers import registry
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.dense import DenseRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.rankers.sparse import SparseRanker
from deepsiam.trainer.ranking.retrieval import system
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.own_code import EXAMPLES, own_code
from tests.trainer.ranking.retrieval.fakes import Tokens, overlap_run, plain_scores, terms_run, tokens_run
from tests.trainer.runs import write_run

METHOD = {"name": "siamese", "pooling": "mean", "max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, tokenizer = tmp_path_factory.mktemp("runs"), toy_collection / "tokenizer.json"
    keys = {"cosine": {"similarity": "cosine", "dimensions": [32, 8]}, "dot": {"dimensions": [20, 8]}, "plain": {}}
    return {name: write_run(folder / name, tokenizer, **METHOD, **more) for name, more in keys.items()}


def ranker(run: Path, collection: Collection) -> DenseRanker:
    opened = open_ranker(run, collection)
    assert isinstance(opened, DenseRanker)
    return opened


@pytest.mark.parametrize(("name", "width"), [("cosine", 32), ("dot", 20), ("plain", 32)])
def test_vectors_are_cut_and_scaled(runs: dict[str, Path], opened: Collection, name: str, width: int) -> None:
    texts = Texts(opened, [0, 1, 2], list(range(40)))
    whole = ranker(runs[name], opened)
    assert (whole.width, whole.note) == (width, None)
    cut = whole.cut(8)
    for own, all_numbers in zip(
        (cut.system(texts).queries, cut.system(texts).documents),
        (whole.system(texts).queries, whole.system(texts).documents),
        strict=True,
    ):
        first = all_numbers[:, :8]
        expected = first / np.linalg.norm(first, axis=1, keepdims=True) if name == "cosine" else first
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)
    assert cut.model is whole.model
    assert (cut.width, whole.width) == (8, width)
    assert cut.identity == whole.identity


def test_a_number_that_was_not_trained_is_told(runs: dict[str, Path], opened: Collection) -> None:
    trained = ranker(runs["cosine"], opened)
    assert trained.cut(8).note is trained.cut(32).note is None
    assert "was trained for 32, 8 dimensions, not for its first 9" in str(trained.cut(9).note)
    assert "was trained for 32 dimensions, not for its first 8" in str(ranker(runs["plain"], opened).cut(8).note)


def test_more_than_there_are_and_other_models_are_refused(runs: dict[str, Path], opened: Collection) -> None:
    with pytest.raises(InputError, match="has vectors of 32 dimensions, and cannot cut them to 33"):
        ranker(runs["cosine"], opened).cut(33)
    with pytest.raises(InputError, match="is not a model of one vector per text, which can be cut to 8 dimensions"):
        open_ranker("bm25", opened).cut(8)
    for options, said in (
        ({"dimensions": "33"}, "cut them to 33"),
        ({"dimensions": "8x"}, "'8x'"),
        ({"pairs": "1"}, "'pairs'"),
    ):
        with pytest.raises(ValueError, match=said):
            ranker(runs["cosine"], opened).with_options(options)


def test_systems_of_several_sizes_are_compared(
    runs: dict[str, Path], opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["--system=bm25", f"--system=a={runs['cosine']}", f"--system=b={runs['cosine']}(dimensions=32)"]
    systems += [f"--system=c=bm25 > 5 {runs['cosine']}", f"--system=d={runs['cosine']}(dimensions=2)"]
    out = tmp_path / "results.json"

    def measured(*more: str) -> dict[str, dict[str, object]]:
        evaluate.main([f"--collection={opened.directory}", "--split=test", f"--out={out}", *systems, *more])
        results: dict[str, dict[str, object]] = json.loads(out.read_text())["systems"]
        return results

    whole = measured()
    assert whole["a"]["metrics"] == whole["b"]["metrics"]
    capsys.readouterr()
    cut = measured("--dimensions=2")
    assert capsys.readouterr().out.count("not for its first 2") == 1
    assert cut["bm25"] | {"stages": 0} == whole["bm25"] | {"stages": 0}
    assert cut["b"]["metrics"] == whole["b"]["metrics"] != cut["a"]["metrics"]
    assert cut["a"]["expression"] == f"{runs['cosine']}(dimensions=2)"
    assert cut["c"]["expression"] == f"bm25 > 5 {runs['cosine']}(dimensions=2)"
    assert cut["a"]["metrics"] == whole["d"]["metrics"]


QUERIES = [3, 11, 40]


def test_a_pool_and_lists_have_the_models_scores(opened: Collection) -> None:
    ranker = ranker_of(terms_run(opened), opened)
    assert isinstance(ranker, SparseRanker)
    system = ranker.system(Texts(opened, QUERIES, list(range(120))))
    scores = system.scores(slice(0, len(QUERIES)))
    lists = [(query, [5, 90, 2, 17]) for query in QUERIES]
    for row, query, of_list in zip(scores, QUERIES, ranker.scores(lists), strict=True):
        expected = plain_scores(ranker.loaded, opened, query, range(120))  # type: ignore[arg-type]
        np.testing.assert_allclose(row, expected, rtol=1e-5)
        np.testing.assert_array_equal(of_list, row[[5, 90, 2, 17]])
        assert (row > 0).any()
    other = ranker.system(Texts(opened, QUERIES[1:], list(range(120))), system)
    assert other.documents is system.documents
    np.testing.assert_array_equal(other.scores(slice(0, len(QUERIES) - 1)), scores[1:])


def test_without_bm25s_it_says_what_to_install(opened: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=r"not installed: bm25s; run: pip install 'deepsiam\[evaluate\]'"):
        Bm25Ranker(opened)


def test_a_list_is_scored_with_the_words_of_the_lists_documents(opened: Collection) -> None:
    ranker = Bm25Ranker(opened)
    lists = [(3, [7, 3]), (0, [0]), (3, [9])]
    pool = [0, 3, 7, 9]
    scores = ranker.system(Texts(opened, [0, 3], pool)).scores(slice(0, 2))
    for (query, documents), of_list in zip(lists, ranker.scores(lists), strict=True):
        expected = scores[[0, 3].index(query), [pool.index(document) for document in documents]]
        np.testing.assert_array_equal(of_list, expected)


class Shares(Tokens):
    """The scores of a list, as shares of 1, with a rounding error that depends on the place."""

    kind = "lists"

    def score(self, queries: Vectors, documents: Vectors) -> torch.Tensor:
        shares = super().score(queries, documents).softmax(dim=1)
        return shares * (1 + 1e-6 * torch.arange(shares.shape[1]))


def test_scores_of_a_list_see_all_of_it_and_copies_tie(opened: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "DOCUMENT_VECTORS", 1)
    lists = [(3, [9, 0, 3, 9, 0, 7]), (5, [3, 4])]
    run = tokens_run(opened)
    alone = ranker_of(run, opened).scores(lists)
    run.model.__class__ = Shares
    together = ranker_of(run, opened).scores(lists)
    for logits, shares in zip(alone, together, strict=True):
        np.testing.assert_allclose(shares, np.exp(logits) / np.exp(logits).sum(), rtol=1e-4)
    assert together[0][0] == together[0][3]
    assert together[0][1] == together[0][4]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_likelihoods_are_sums_over_terms_whatever_the_list(opened: Collection, tmp_path: Path, alpha: float) -> None:
    keys = {"name": "tilde", "alpha": alpha, "max_query_tokens": 16, "max_document_tokens": 24}
    loaded = load_trained(write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, **keys))
    lists = [(0, list(range(30))), (1, [5, 3, 29]), (0, [29])]
    found = ranker_of(loaded, opened).scores(lists)
    for (query, documents), scores in zip(lists, found, strict=True):
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, plain_scores(loaded, opened, query, documents), rtol=1e-5)
    assert found[0][29] == found[2][0]


@pytest.fixture
def euclidean(opened: Collection, tmp_path: Path) -> Iterator[ModelRanker]:
    """A ranker of the kind in examples/, around a trained Siamese network."""
    keys = {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 24}
    loaded = load_trained(write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, **keys))
    loaded.model.kind = "euclidean"  # type: ignore[assignment]
    with own_code(EXAMPLES):
        import_named("deepsiam_examples.euclidean", "the test")
        yield ranker_of(loaded, opened)


def test_a_kind_is_one_file(euclidean: ModelRanker, opened: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task.of(opened, "test")
    embedded = registry.RANKERS["dense"](euclidean.loaded, opened).system(task)
    queries, documents = (vectors.astype(np.float64) for vectors in (embedded.queries, embedded.documents))  # type: ignore[attr-defined]
    distances = np.linalg.norm(queries[:, None] - documents, axis=2)
    ranked = euclidean.system(task).rank(10)
    for row, of_query in zip(ranked, distances, strict=True):
        np.testing.assert_allclose(of_query[row.documents], np.sort(of_query)[:10], atol=1e-5)
    assert evaluate_split(euclidean, "test").means == task.measure(task.rank(euclidean.system(task), 100)).means
    (scores,) = euclidean.scores([(task.queries[0], task.pool[:20])])
    np.testing.assert_array_equal(np.argsort(-scores, kind="stable"), np.argsort(distances[0, :20], kind="stable"))
    texts = mining_texts(opened, "train")
    found = euclidean.system(texts).rank(30)
    mined = mine(texts, Relevant.of_groups(opened, opened.groups("train")), found, None)
    assert sum(len(negatives.documents) for negatives in mined.negatives.values()) > 100
    monkeypatch.setitem(registry.RANKERS._values, "dense", type(euclidean))
    systems = Systems.open(
        opened, read_systems([f"one={euclidean.loaded.checkpoint.parents[1]}", "both=fuse(bm25, one)"])
    )
    compared = compare(systems, "test").systems
    assert compared["one"].metrics["mrr@10"] == pytest.approx(evaluate_split(euclidean, "test").means["mrr@10"])
    assert compared["both"].metrics["mrr@10"] > 0


def test_models_that_do_not_search_are_refused(opened: Collection, shards: Path, tmp_path: Path) -> None:
    ranker = ranker_of(overlap_run(opened), opened)
    assert not ranker.searches
    with pytest.raises(InputError, match="run/step: a overlap cannot search: it re-ranks what another system found"):
        ranker.system(Texts(opened, [0], [0]))
    run = write_run(tmp_path / "mlm", shards / "tokenizer.json", name="mlm", max_tokens=32)
    with pytest.raises(InputError, match="a mlm pre-training run, which was not trained to compare texts: fine-tune"):
        open_ranker(run, opened)
    assert open_ranker("bm25", opened).kind == "bm25"
    assert ranker_of(tokens_run(opened), opened).temperature == 1.0
