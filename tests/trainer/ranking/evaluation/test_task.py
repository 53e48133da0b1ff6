"""A split's task: the order of its pool favours no document."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import read_systems
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH
from deepsiam.trainer.ranking.evaluation.results_file import Identical
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.table import table
from deepsiam.trainer.ranking.evaluation.task import Task, evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.retrieval.search import search
from tests import toy
from tests.trainer.runs import write_run

DOCUMENTS, QUERIES = 1000, 200


@pytest.fixture
def collection(tmp_path: Path, toy_collection: Path) -> Collection:
    """One text for all documents; each query has one relevant document, and the pool lists those first."""
    folder = toy.write_beir(
        tmp_path / "collection",
        {f"d{i}": "the same text" for i in range(DOCUMENTS)},
        {f"q{i}": "same" for i in range(QUERIES)},
        test="".join(f"q{i}\td{i}\t1\n" for i in range(QUERIES)),
    )
    (folder / "pools").mkdir()
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


def test_equal_scores_rank_by_chance(collection: Collection) -> None:
    task = Task.of(collection, "test")
    queries, documents = (np.ones((len(rows), 4), np.float32) for rows in (task.queries, task.pool))
    expect_chance(task.measure(search(queries, documents, DEPTH).each()).means)
    expect_chance(evaluate_split(Bm25Ranker(collection), "test").means)


def test_the_order_is_the_same_whatever_the_pool_file_lists_first_and_no_pool_is_empty(
    collection: Collection, toy_collection: Path
) -> None:
    pool = Task.of(collection, "test").pool
    file = collection.directory / "pools" / "test.txt"
    file.write_text("\n".join(reversed(file.read_text().split())))
    assert Task.of(built(collection.directory, toy_collection), "test").pool == pool
    assert sorted(pool) == list(range(DOCUMENTS))
    file.write_text("\n")
    with pytest.raises(InputError, match="the pool of split test is empty"):
        Task.of(built(collection.directory, toy_collection), "test")


@pytest.fixture
def arguments(tmp_path: Path, toy_collection: Path) -> Collection:
    """As in ArguAna, each query is a document with its id, which all systems rank first; test.0 is judged relevant."""
    folder, words = tmp_path / "arguments", ["abcd", "bcde", "cdef", "defg"]
    texts = {f"test.{i}": f"{word} {word[::-1]} common" for i, word in enumerate(words)}
    texts |= {f"other.{i}": f"{word} abc common" for i, word in enumerate(words)}
    judged = [f"test.{i}\tother.{i}\t1" for i in range(4)] + ["test.0\ttest.0\t1", "test.1\tgone\t1"]
    queries = {name: text for name, text in texts.items() if name.startswith("test")}
    toy.write_beir(folder, texts, queries, **dict.fromkeys(("test", "dev"), "\n".join(judged)))
    return built(folder, toy_collection)


def ranked_ids(file: Path) -> dict[str, list[str]]:
    """The documents of a run file, by the query's id."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        found.setdefault(line.split()[0], []).append(line.split()[2])
    return found


def test_no_system_ranks_the_query_itself(arguments: Collection, toy_collection: Path, tmp_path: Path) -> None:
    """Before the cut, so that each ranking is as long as without it."""
    keys = {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 16}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", seed=1, **keys)
    (tmp_path / "given.trec").write_text("".join(f"test.2 Q0 test.{i} 0 {9 - i} x\n" for i in (3, 2, 1)))
    texts = ["bm25", f"m={run}", f"given={tmp_path / 'given.trec'}"]
    texts += ["fused=fuse(bm25, m)", "line=bm25 > 2 +m", "lists=fuse(given, fuse(bm25, m))"]
    systems = Systems.open(arguments, read_systems(texts))
    for rule, own in (("auto", {"test.0"}), ("on", set()), ("off", {f"test.{i}" for i in range(4)})):
        folder = tmp_path / rule
        folder.mkdir()
        results = compare(systems, "test", folder, identical_ids=rule)  # type: ignore[arg-type]
        left_out = {"auto": 3, "on": 4, "off": 0}[rule]
        assert results.about.ignore_identical_ids == Identical(rule=rule, queries=left_out)
        told = [text for text in table(results) if "with the query's id is left out" in text]
        assert [text.split(" queries")[0].split()[-1] for text in told] == ([str(left_out)] if left_out else [])
        files = {name: ranked_ids(folder / f"{name}.trec") for name in results.systems}
        for name, ranked in files.items():
            itself = {query for query, documents in ranked.items() if query in documents}
            assert itself == (own & {"test.2"} if name == "given" else own), (rule, name)
        assert {len(ranked) for ranked in files["m"].values()} == {8 - (q not in own) for q in files["m"]}
        assert files["given"]["test.2"] == (
            ["test.1", "test.2", "test.3"] if own > {"test.0"} else ["test.1", "test.3"]
        )
    task = Task.of(arguments, "test")
    assert task.identical == 3
    assert [len(found.documents) for found in task.rank(Bm25Ranker(task.collection).system(task), 2)] == [2] * 4
    assert evaluate_split(Bm25Ranker(arguments), "test").values["mrr@10"].tolist() == [1, 1, 1, 1]
    # the document that the corpus lacks is relevant, and never found
    assert evaluate_split(Bm25Ranker(arguments), "test").values["recall@100"].tolist() == [1, 1 / 2, 1, 1]


def test_a_weight_is_not_chosen_on_a_split_without_a_relevant_document(arguments: Collection) -> None:
    folder = arguments.directory
    judged = (folder / "qrels" / "test.tsv").read_text().splitlines()
    none = [judged[0], *(line.rpartition("\t")[0] + "\t0" for line in judged[1:])]
    (folder / "qrels" / "dev.tsv").write_text("\n".join(none) + "\n")
    collection = build("beir", [folder], folder, arguments.tokenizer)
    (choice,) = Systems(collection, read_systems([f"f=fuse(bm25, {folder})"]), {}).choices("test").values()
    assert choice.split is None
    assert choice.why == "the pool of split dev, to choose a weight on, has no relevant document"
    with pytest.raises(InputError, match="has no relevant document: give a weight, or leave out the split"):
        Systems(collection, read_systems([f"f=fuse(bm25, {folder}, split=dev)"]), {}).choices("test")


def test_no_system_ranks_what_is_excluded_for_a_query(toy_collection: Path, tmp_path: Path) -> None:
    """Whatever the rule for equal ids is, and before the cut."""
    texts = {f"d{i}": f"abcd {word}" for i, word in enumerate(("bcde", "cdef", "defg", "efgh"))}
    folder = toy.write_beir(tmp_path / "c", texts, {"q0": "abcd", "q1": "abcd"}, test="q0\td3\t1\nq1\td3\t1\n")
    row = {"_id": "q0", "text": "abcd", "excluded_ids": ["d0", "d2", "gone"]}
    (folder / "queries.jsonl").write_text(f'{json.dumps(row)}\n{{"_id": "q1", "text": "abcd"}}\n')
    opened = built(folder, toy_collection)
    (tmp_path / "given.trec").write_text("".join(f"q0 Q0 d{i} 0 {9 - i} x\n" for i in range(4)))
    texts_of_systems = ["bm25", f"given={tmp_path / 'given.trec'}", "fused=fuse(bm25, given)"]
    results = compare(Systems.open(opened, read_systems(texts_of_systems)), "test", tmp_path, identical_ids="off")
    assert results.about.remarks[-1] == "documents that are excluded for 1 queries are left out of their rankings"
    for name in results.systems:
        assert sorted(ranked_ids(tmp_path / f"{name}.trec")["q0"]) == ["d1", "d3"]
    task = Task.of(opened, "test", "off")
    ranked = task.rank(Bm25Ranker(opened).system(task), 2)
    assert [len(found.documents) for found in ranked] == [2, 2]
