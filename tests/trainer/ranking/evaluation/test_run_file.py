"""TREC run files: a written file is read back in the same order; errors in a file are reported with their line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation import run_file
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked
from tests.trainer.ranking.retrieval.fakes import positions, ranked_as


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
