"""FlagEmbedding: labels 1 and 0 with a teacher's scores beside them, lines of one query merged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices
from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import write_lines

FOX = {"query": "fox", "pos": ["a red fox"], "neg": ["a dog", "a stone"], "prompt": "Find:", "type": "retrieval"}
DOG = {"query": "dog", "pos": ["a dog"]}


def scored(record: dict[str, Any], *scores: float, **changes: Any) -> dict[str, Any]:
    positives = len(record["pos"])
    return record | {"pos_scores": scores[:positives], "neg_scores": scores[positives:]} | changes


class TestLabels(FormatContract):
    name = "flagembedding"
    files = {"a.jsonl": lines(FOX, DOG)}
    found = {"train": [("fox", {"a red fox": 1, "a dog": 0, "a stone": 0}), ("dog", {"a dog": 1})]}
    refused = [
        ("a.jsonl", [1], ":3: not a JSON object"),
        ("a.jsonl", FOX | {"query": None}, ":3: 'query' is missing or not a string"),
        ("a.jsonl", FOX | {"query": " "}, ":3: 'query' is empty"),
        ("a.jsonl", FOX | {"pos": None}, ":3: 'pos' is missing or not a list"),
        ("a.jsonl", FOX | {"pos": "a red fox"}, ":3: 'pos' is missing or not a list"),
        ("a.jsonl", FOX | {"pos": []}, ":3: 'pos' is empty"),
        ("a.jsonl", FOX | {"neg": [""]}, ":3: 'neg' is empty"),
        ("a.jsonl", FOX | {"neg": [{"text": "a dog"}]}, ":3: 'neg' is missing or not a string"),
        ("a.jsonl", FOX | {"query": "\ud800"}, ":3: has half a character"),
        ("a.jsonl", FOX | {"neg": ["\ud800"]}, ":3: has half a character"),
    ]


class TestArray(TestLabels):
    files = {"d.json": json.dumps([FOX, DOG])}
    refused = [({"d.json": json.dumps([FOX, DOG | {"pos": []}])}, "d.json:1: element 2: 'pos' is empty")]


class TestScores(FormatContract):
    name = "flagembedding"
    files = {"a.jsonl": lines(scored(FOX, 9.5, 2, -1), scored(DOG, 7))}
    found = TestLabels.found
    refused = [
        ("a.jsonl", scored(FOX, 3, 2, 1, pos_scores=[1, 2]), ":3: 'pos_scores' is not a list of 1"),
        ("a.jsonl", scored(FOX, 3, 2, 1, neg_scores=3), ":3: 'neg_scores' is not a list of 2"),
        ("a.jsonl", scored(FOX, 3, 2, 1, neg_scores=[1, "x"]), ":3: a score of 'neg': 'x' is not a number"),
        ("a.jsonl", scored(FOX, 3, 2, float("nan")), ":3: a score of 'neg': nan is not a number that fp32 can hold"),
        ("a.jsonl", scored(FOX, 3, 2, 1e39), ":3: a score of 'neg': 1e[+]39 is not a number that fp32 can hold"),
    ]


def test_a_positive_of_one_line_is_no_negative_of_another(tmp_path: Path, small: Tokenizer) -> None:
    other = {"query": "fox", "pos": ["a dog"], "neg": ["a red fox", "a tree"]}
    opened = build("flagembedding", [write_lines(tmp_path / "a.jsonl", [FOX, DOG, other])], tmp_path / "out", small)
    assert choices(opened, "train")[0] == ("fox", {"a red fox": 1, "a dog": 1, "a stone": 0, "a tree": 0})
    assert len(choices(opened, "train")) == 2
    assert list(opened.corpus.texts()) == ["a red fox", "a dog", "a stone", "a tree"]  # each text is stored once


def teachers(opened: Collection, split: str) -> list[float] | None:
    scores = opened.groups(split).scores
    return None if scores is None else scores.tolist()


def test_scores_stay_beside_the_labels(tmp_path: Path, small: Tokenizer) -> None:
    other = scored(FOX | {"pos": ["a dog"], "neg": ["a stone"]}, 5, -2)
    train = write_lines(tmp_path / "a.jsonl", [scored(FOX, 9.5, 2, -1), other])
    dev = write_lines(tmp_path / "dev.jsonl", [DOG])
    opened = build("flagembedding", [train, dev], tmp_path / "out", small)
    assert choices(opened, "train") == [("fox", {"a red fox": 1, "a dog": 1, "a stone": 0})]
    assert teachers(opened, "train") == [9.5, -1, 5]  # the line where the dog is positive; the higher of two scores
    assert [opened.corpus.text(i) for i in opened.groups("train")[0].candidates] == ["a red fox", "a stone", "a dog"]
    assert teachers(opened, "dev") is None
    assert opened.manifest["remarks"] == []


@pytest.mark.parametrize("side", ["pos", "neg"])
def test_texts_without_a_score_are_counted(tmp_path: Path, small: Tokenizer, side: str) -> None:
    half = {key: value for key, value in scored(FOX, 9, 2, 1).items() if key != f"{side}_scores"}
    opened = build("flagembedding", [write_lines(tmp_path / "a.jsonl", [half])], tmp_path / "out", small)
    expected = {"pos": [np.nan, 2, 1], "neg": [9, np.nan, np.nan]}[side]
    np.testing.assert_array_equal(opened.groups("train").scores, expected)
    lacking = {"pos": 1, "neg": 2}[side]
    assert opened.manifest["remarks"] == [f"split train: {lacking} of 3 candidates have no teacher's score"]
