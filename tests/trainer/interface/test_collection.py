"""A collection of texts in memory is what `data_prep collection` makes of the same texts in files."""

from pathlib import Path
from typing import Any

import pytest

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.texts import Texts
from tests import toy
from tests.trainer.runs import write_run

DOCUMENTS = {"d1": "planes fly by lift", "d2": " ships float ", "d3": "lift is a force"}
QUERIES = {"q1": "how do planes fly", "q2": "what is lift"}


@pytest.fixture
def texts(toy_collection: Path) -> dict[str, Any]:
    """The texts and the test judgements of the toy collection."""
    opened = Collection.open(toy_collection)
    corpus, queries = (dict(zip(part.ids, part.texts(), strict=True)) for part in (opened.corpus, opened.queries))
    return {"documents": corpus, "queries": queries, "relevant": opened.qrels("test")}


def test_it_has_the_arrays_of_the_same_files(toy_collection: Path, texts: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = toy_collection / "tokenizer.json"
    made = deepsiam.Collection.from_texts(**texts, folder=tmp_path / "made", tokenizer=tokenizer)
    ours, theirs = (Collection.open(folder).manifest["arrays"] for folder in (made.directory, toy_collection))
    assert made.splits() == ["test"]
    assert ours == {name: theirs[name] for name in theirs if not name.startswith("splits/train")}


def test_models_read_it_with_their_own_tokenizer(texts: dict[str, Any], toy_collection: Path, tmp_path: Path) -> None:
    lengths = {"max_query_tokens": 8, "max_document_tokens": 16}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese", **lengths)
    made = deepsiam.Collection.from_texts(**texts)
    folder = made.directory
    alone = deepsiam.evaluate(made, {"bm25": "bm25"})
    assert alone.metrics == deepsiam.evaluate(toy_collection, {"bm25": "bm25"}).metrics
    both = deepsiam.evaluate(made, {"bm25": "bm25", "mine": deepsiam.load(run), "again": run})
    assert both.metrics["mine"] == both.metrics["again"]
    assert both.metrics["mine"] == deepsiam.evaluate(toy_collection, {"mine": run}).metrics["mine"]
    assert deepsiam.evaluate(made, {"bm25": "bm25"}).metrics == alone.metrics
    assert folder.is_dir()
    del made
    assert not folder.exists()  # it was temporary


def test_grades_and_lists() -> None:
    made = deepsiam.Collection.from_texts(DOCUMENTS, QUERIES, {"q1": {"d1": 2, "d2": 0}, "q2": ["d3"]}, split="dev")
    opened = Collection.open(made.directory)
    assert opened.qrels("dev") == {"q1": {"d1": 2, "d2": 0}, "q2": {"d3": 1}}
    assert [*opened.corpus.texts()] == ["planes fly by lift", "ships float", "lift is a force"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"documents": {**DOCUMENTS, "d4": 3}}, r"documents\['d4'\]: 3 is not a string"),
        ({"documents": {"": "a"}}, "documents:1: id '' is empty or contains a tab or line break"),
        ({"documents": {}}, "documents: give a dict of texts by their ids, which is not empty"),
        ({"queries": ["a"]}, "queries: give a dict of texts by their ids, which is not empty"),
        ({"relevant": {}}, "relevant: give a dict of the ids of relevant documents by the ids of queries"),
        ({"split": "a/b"}, "split: 'a/b' is no name of a split"),
        ({"relevant": {"q1": 1}}, r"relevant\['q1'\]: 1 is no list of ids"),
        ({"relevant": {"q3": ["d1"]}}, r"relevant\['q3'\]: is not among the queries"),
        ({"relevant": {"q1": ["d4"]}}, r"relevant\['q1'\]: 'd4' is not among the documents"),
        ({"relevant": {"q1": "d1"}}, r"relevant\['q1'\]: 'd1' is no list of ids: write \['d1'\]"),
        ({"relevant": {"q1": {"d1": 0.5}}}, r"relevant\['q1'\]\['d1'\]: 0.5 is not a whole number, as grades are"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"documents": DOCUMENTS, "queries": QUERIES, "relevant": {"q1": ["d1"]}, **changed}
    with pytest.raises(deepsiam.InputError, match=message):
        deepsiam.Collection.from_texts(**given, folder=tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_folder_with_contents_is_kept(tmp_path: Path) -> None:
    toy.write_beir(tmp_path / "mine", DOCUMENTS, QUERIES, test="q1\td1\t1\n")
    with pytest.raises(deepsiam.InputError, match="mine: exists: name a new folder"):
        deepsiam.Collection.from_texts(DOCUMENTS, QUERIES, {"q1": ["d1"]}, folder=tmp_path / "mine")
    with pytest.raises(deepsiam.InputError, match="mine: not tokenised, or not a collection; run: python -m data_prep"):
        deepsiam.Collection.open(tmp_path / "mine")


def test_texts_in_memory_read_like_those_of_a_file(toy_collection: Path) -> None:
    opened = Collection.open(toy_collection)
    held = Texts.of([*opened.corpus.texts(), ""], opened.tokenizer)
    assert [*held.texts()] == [*opened.corpus.texts(), ""]
    assert [held.tokens(i).tolist() for i in range(120)] == [opened.corpus.tokens(i).tolist() for i in range(120)]
    assert held.tokens(120).tolist() == []
    assert [held.ids.number(name) for name in ("0", "17", "120", "d0")] == [0, 17, 120, -1]
