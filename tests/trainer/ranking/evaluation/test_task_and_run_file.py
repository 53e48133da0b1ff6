"""A split's task, whose order favours no document, and TREC run files of it."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.evaluation import run_file
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import read_systems
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH
from deepsiam.trainer.ranking.evaluation.results_file import Identical
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.table import table
from deepsiam.trainer.ranking.evaluation.task import Task, evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked, search
from tests import toy
from tests.trainer.ranking.retrieval.fakes import positions, ranked_as
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


def test_the_order_does_not_follow_the_file_and_no_pool_is_empty(collection: Collection, toy_collection: Path) -> None:
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
        assert files["given"]["test.2"] == [f"test.{i}" for i in (1, 2, 3) if i != 2 or rule == "off"]
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
    given = read_systems(["bm25", f"given={tmp_path / 'given.trec'}", "fused=fuse(bm25, given)"])
    results = compare(Systems.open(opened, given), "test", tmp_path, identical_ids="off")
    assert results.about.remarks[-1] == "documents that are excluded for 1 queries are left out of their rankings"
    for name in results.systems:
        assert sorted(ranked_ids(tmp_path / f"{name}.trec")["q0"]) == ["d1", "d3"]
    task = Task.of(opened, "test", "off")
    ranked = task.rank(Bm25Ranker(opened).system(task), 2)
    assert [len(found.documents) for found in ranked] == [2, 2]


@pytest.fixture
def task(opened: Collection) -> Task:
    return Task.of(opened, "test")


def test_what_is_written_is_read_back_to_the_last_bit(task: Task, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ranked = Bm25Ranker(task.collection).system(task).rank(30)
    ranked[0] = Ranked(np.arange(20), np.sort(rng.standard_normal(20)).astype(np.float32)[::-1])
    ranked[1] = Ranked(np.arange(5), np.full(5, 1 / 3, np.float32))  # equal scores are in the pool's order
    ranked[2] = ranked_as([])
    path = tmp_path / "bm25.trec"
    run_file.write(path, zip(task.qrels, ranked, strict=True), task.name, "my own model")
    first = path.read_text().splitlines()[0].split()
    assert first == [
        next(iter(task.qrels)),
        "Q0",
        task.collection.corpus.ids[task.pool[0]],
        "1",
        first[4],
        "my_own_model",
    ]
    read = run_file.read(path, task)
    assert positions(read.ranked) == positions(ranked)
    for back, row in zip(read.ranked, ranked, strict=True):
        np.testing.assert_array_equal(back.scores, row.scores)
    assert positions(task.first(read.ranked, 3)) == [row[:3] for row in positions(ranked)]
    assert read.remarks == [f"{path}: 1 judged queries are not in it, and count 0"]
    assert task.measure(read.ranked).means == task.measure(ranked).means


def test_documents_rank_by_score_whatever_their_lines_and_ranks_say(task: Task, tmp_path: Path) -> None:
    """As by trec_eval; BEIR's writer has rank 0 on every line."""
    query, names, path = next(iter(task.qrels)), task.collection.corpus.ids, tmp_path / "r.trec"
    for ranks in ("0 0 0", "3 2 1", "first x -"):
        rows = zip((4, 9, 2), ranks.split(), ("1", "2.5e0", "1"), strict=True)
        lines = [f"{query}\tQ0 {names[task.pool[i]]} {rank} \t{score}  my model 7" for i, rank, score in rows]
        path.write_bytes(("\ufeff" + "\r\n\r\n".join(lines) + "\r\n \r\n\r\n").encode())
        assert positions(run_file.read(path, task).ranked)[0] == [9, 2, 4]


def test_what_the_task_or_the_collection_lacks_is_left_out_and_counted(task: Task, tmp_path: Path) -> None:
    (query, *_), path = task.qrels, tmp_path / "r.trec"
    task = replace(task, pool=[1, *(i for i in task.pool[:50] if i != 1)])
    outside = next(name for name in task.collection.corpus.ids if name[1:] not in map(str, task.pool))
    path.write_text(
        f"{query} Q0 d9999 1 3 x\nnobody Q0 d1 1 3 x\n{query} Q0 d1 2 2 x\nq0 Q0 d1 1 3 x\n{query} Q0 {outside} 3 1 x\n"
    )
    read = run_file.read(path, task)
    assert positions(read.ranked)[0] == [0]
    assert read.remarks == [
        f"{path}: 19 judged queries are not in it, and count 0",
        f"{path}: 2 of its queries are not judged, and left out",  # q0 is of another split
        f"{path}: 2 of its lines are of documents that are not in the pool, and left out",
        f"{path}:1: the collection has no document 'd9999' (the first that it lacks)",
    ]
    path.write_text(f"nobody Q0 d1 1 3 x\n{query} Q0 d9999 1 3 x\n")
    with pytest.raises(InputError, match="r.trec:1: the collection has no query 'nobody', nor .* another collection"):
        run_file.read(path, task)


BEFORE = "QUERY Q0 d2 1 0.7 x\nnobody Q0 d1 1 3 x\nQUERY Q0 d9999 1 3 x\n"
FIVE = "has 5 fields, not the six of QUERY Q0 DOCUMENT RANK SCORE TAG"
BAD = "is not a number that fp32 can hold"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BEFORE + "QUERY Q0 d3 1 0.5", f"r.trec:4: {FIVE}"),
        (BEFORE + "QUERY Q0\xc2\xa0d3 2 1 x", f"r.trec:4: {FIVE}"),
        (BEFORE + "QUERY Q0 d2 2 0.5 x", "r.trec:4: document 'd2' of query 'QUERY' is on an earlier line, too"),
        (BEFORE + "nobody Q0 d1 2 2 x", "r.trec:4: document 'd1' of query 'nobody' is on an earlier line, too"),
        (BEFORE + "QUERY Q0 d9999 2 2 x", "r.trec:4: document 'd9999' of query 'QUERY' is on an earlier line, too"),
        *((BEFORE + f"QUERY Q0 d3 2 {n} x", f"r.trec:4: the score {n} {BAD}") for n in ("NaN", "inf", "-1e39")),
        (BEFORE + "QUERY Q0 d3 2 high x", "r.trec:4: the score 'high' is not a number"),
        (BEFORE + "QUERY Q0 \xff 2 1 x", "r.trec:4: not UTF-8"),
        ("", "r.trec: is empty; get it again, or leave it out"),
        ("\n \n", "r.trec: has no line; get it again, or leave it out"),
        ("\xef\xbb\xbf\n", "r.trec: has no line; get it again, or leave it out"),
        (None, "r.trec: cannot read: No such file"),
    ],
)
def test_a_bad_file_is_named(task: Task, tmp_path: Path, content: str | None, message: str) -> None:
    query, path = next(iter(task.qrels)), tmp_path / "r.trec"
    if content is not None:
        path.write_bytes(content.replace("QUERY", query).encode("latin-1"))
    with pytest.raises(InputError) as caught:
        run_file.read(path, task)
    assert str(caught.value).startswith(f"{tmp_path}/{message.replace(chr(39) + 'QUERY', chr(39) + query)}")


def test_ids_that_the_format_cannot_write_are_refused(task: Task, tmp_path: Path) -> None:
    ranked = Ranked(np.arange(1), np.ones(1, np.float32))
    for name in ("q x", " q", "q ", "q\u00a0", "\u3000q", "q\n", "q\x85x", "", " "):
        with pytest.raises(InputError, match="run files cannot have ids with spaces in them or around them"):
            run_file.write(tmp_path / "r.trec", [("q", ranked), (name, ranked)], task.name, "bm25")
        with pytest.raises(InputError, match="run files cannot have ids with spaces in them or around them"):
            run_file.write(tmp_path / "r.trec", [("q", ranked)], lambda _, name=name: name, "bm25")
    assert not list(tmp_path.iterdir())
