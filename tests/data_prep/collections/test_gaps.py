"""Gaps in a collection are reported once, when it is built; a collection without gaps has no remarks."""

import json
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.formats.beir import Beir
from deepsiam.data_prep.collections.gaps import require_any
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.toy import write_beir

CORPUS = ["a fox", "", "dogs sleep", " "]
QUERIES = ["who runs", "who sleeps", "what is it"]


def made(folder: Path, tokenizer: Tokenizer, rows: list[tuple[int, int, int]], texts: list[str] = CORPUS) -> Collection:
    corpus = {f"d{i}": text for i, text in enumerate(texts)}
    queries = {f"q{i}": text for i, text in enumerate(QUERIES)}
    judged = "".join(f"q{q}\td{d}\t{score}\n" for q, d, score in rows)
    return build("beir", [write_beir(folder, corpus, queries, train=judged)], folder, tokenizer)


def test_an_input_of_which_nothing_is_left_names_the_files_and_why(tmp_path: Path, small: Tokenizer) -> None:
    snli, sick = tmp_path / "snli.jsonl", tmp_path / "SICK.txt"
    snli.write_text('{"sentence1": "a", "sentence2": "b", "gold_label": "-"}\n' * 2)
    why = "left out 2 pairs without a gold label"
    with pytest.raises(InputError, match=f"corpus: the input contains no texts: {snli}; split train: {why}"):
        build("nli", [snli], tmp_path / "out", small)
    sick.write_text("sentence_A\tsentence_B\tentailment_label\tSemEval_set\na fox\tdogs\tNEUTRAL\tTRAIN\n")
    with pytest.raises(InputError, match=f"split dev: the input has no judgements of it: {sick}$"):
        build("nli", [sick], tmp_path / "out", small)
    assert not (tmp_path / "out").exists()


def test_the_files_of_a_message_are_few() -> None:
    reader = Beir([Path()])
    reader.paths = [Path(f"{i}.tsv") for i in range(5)]
    reader.remarks = list  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"nothing: 0.tsv, 1.tsv, 2.tsv, 2 more$"):
        require_any(0, "nothing", reader)


def test_documents_without_text_and_queries_without_relevant_ones(tmp_path: Path, small: Tokenizer) -> None:
    opened = made(tmp_path / "c", small, [(0, 0, 1), (1, 2, 0), (1, 1, 0), (2, 0, -1)])
    assert opened.manifest["remarks"] == [
        "2 of 4 documents have no text (the first: d1)",
        "split train: 2 of 3 queries have no relevant document (the first: q1)",
    ]


def test_a_whole_collection_has_no_remarks(tmp_path: Path, small: Tokenizer) -> None:
    opened = made(tmp_path / "c", small, [(0, 0, 1), (1, 2, 2), (1, 0, 0)], ["a fox", "cats", "dogs"])
    assert opened.manifest["remarks"] == []


def test_a_query_with_a_relevant_document_in_another_of_its_lists_lacks_none(tmp_path: Path, small: Tokenizer) -> None:
    rows = [("a fox", 0, 1), ("a fox", 1, 0), ("dogs", 1, 0)]
    lines = [{"query": query, "passages": [{"text": f"p{i}", "label": label}]} for query, i, label in rows]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    opened = build("answer_selection", [tmp_path / "train.jsonl"], tmp_path / "c", small)
    assert opened.manifest["remarks"] == ["split train: 1 of 2 queries have no relevant document (the first: 'dogs')"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("nli", [{"premise": "a", "hypothesis": text, "label": text} for text in ("entailment", "neutral")]),
        ("flagembedding", [{"query": "a", "pos": ["b"], "neg": ["c"], "pos_scores": [-0.5], "neg_scores": [-2.5]}]),
    ],
)
def test_classes_are_no_relevance_and_a_teachers_scores_are_beside_it(
    tmp_path: Path, small: Tokenizer, name: str, lines: list[dict[str, object]]
) -> None:
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert build(name, [tmp_path / "train.jsonl"], tmp_path / "c", small).manifest["remarks"] == []
