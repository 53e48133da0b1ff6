"""A split's task: the order of its pool favours no document."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from data_prep.collections.build import build
from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from data_prep.tokenizers import tokenizer as tokenizers
from trainer.evaluation.metrics import DEPTH
from trainer.evaluation.task import Task, evaluate_bm25
from trainer.retrieval.search import search

DOCUMENTS, QUERIES = 1000, 200


@pytest.fixture
def collection(tmp_path: Path, toy_collection: Path) -> Collection:
    """One text for all documents; each query has one relevant document, and the pool lists those first."""
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    (folder / "pools").mkdir()
    corpus = [json.dumps({"_id": f"d{i}", "text": "the same text"}) for i in range(DOCUMENTS)]
    queries = [json.dumps({"_id": f"q{i}", "text": "same"}) for i in range(QUERIES)]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    (folder / "queries.jsonl").write_text("\n".join(queries))
    judged = [f"q{i}\td{i}\t1" for i in range(QUERIES)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    (folder / "pools" / "test.txt").write_text("\n".join(f"d{i}" for i in range(DOCUMENTS)))
    return built(folder, toy_collection)


def built(folder: Path, toy_collection: Path) -> Collection:
    return build("beir", [folder], folder, tokenizers.load(toy_collection / "tokenizer.json"))


def expect_chance(means: dict[str, float]) -> None:
    """Expect means within three standard deviations of a random order; the pool lists relevant documents first."""
    share = QUERIES / DOCUMENTS  # the share of the pool that is relevant to some query
    spread = math.sqrt(DEPTH * share * (1 - share)) / QUERIES
    assert means["recall@100"] == pytest.approx(DEPTH / DOCUMENTS, abs=3 * spread)
    reciprocal = [1 / rank for rank in range(1, 11)]
    spread = math.sqrt(sum(r**2 for r in reciprocal) * share * (1 - share)) / QUERIES
    assert means["mrr@10"] == pytest.approx(sum(reciprocal) / DOCUMENTS, abs=3 * spread)


def test_equal_embeddings_rank_by_chance(collection: Collection) -> None:
    task = Task.of(collection, "test")
    queries, documents = (np.ones((len(rows), 4), np.float32) for rows in (task.queries, task.pool))
    expect_chance(task.measure(search(queries, documents, DEPTH).each()).means)


def test_equal_scores_of_bm25_rank_by_chance(collection: Collection) -> None:
    expect_chance(evaluate_bm25(collection, "test").means)


def test_the_order_is_the_same_for_every_system_and_whatever_the_pool_file_lists_first(
    collection: Collection, toy_collection: Path
) -> None:
    pool = Task.of(collection, "test").pool
    file = collection.directory / "pools" / "test.txt"
    file.write_text("\n".join(reversed(file.read_text().split())))
    assert Task.of(built(collection.directory, toy_collection), "test").pool == pool
    assert sorted(pool) == list(range(DOCUMENTS))


def test_an_empty_pool_is_refused(collection: Collection, toy_collection: Path) -> None:
    (collection.directory / "pools" / "test.txt").write_text("\n")
    with pytest.raises(InputError, match="the pool of split test is empty"):
        Task.of(built(collection.directory, toy_collection), "test")
