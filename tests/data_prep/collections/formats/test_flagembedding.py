"""FlagEmbedding: labels 1 and 0 with a teacher's scores beside them, lines of one query merged."""

import json
from math import nan
from typing import Any

from tests.data_prep.collections.formats.contract import FormatContract, lines

FOX = {"query": "fox", "pos": ["a red fox"], "neg": ["a dog", "a stone"], "prompt": "Find:", "type": "retrieval"}
DOG = {"query": "dog", "pos": ["a dog"]}
OTHER = {"query": "fox", "pos": ["a dog"], "neg": ["a red fox", "a tree"]}  # a positive of one line is no negative


def scored(record: dict[str, Any], *scores: float, **changes: Any) -> dict[str, Any]:
    positives = len(record["pos"])
    return record | {"pos_scores": scores[:positives], "neg_scores": scores[positives:]} | changes


class TestLabels(FormatContract):
    name = "flagembedding"
    files = {"a.jsonl": lines(FOX, DOG, OTHER), "d.json": json.dumps([FOX, DOG, OTHER])}
    given = ["a.jsonl", "array=d.json"]
    found = dict.fromkeys(
        ("train", "array"), [("fox", {"a red fox": 1, "a stone": 0, "a dog": 1, "a tree": 0}), ("dog", {"a dog": 1})]
    )
    counts = (4, 2)
    refused = [
        ({"d.json": json.dumps([FOX, DOG | {"pos": []}])}, "d.json:1: element 2: 'pos' is empty"),
        ("a.jsonl", FOX | {"query": " "}, ":4: 'query' is empty"),
        ("a.jsonl", FOX | {"pos": "a red fox"}, ":4: 'pos' is missing or not a list"),
        ("a.jsonl", FOX | {"pos": []}, ":4: 'pos' is empty"),
        ("a.jsonl", FOX | {"neg": [""]}, ":4: 'neg' is empty"),
    ]


AGAIN = scored(FOX | {"pos": ["a dog"], "neg": ["a stone"]}, 5, -2)


class TestScores(FormatContract):
    name = "flagembedding"
    files = {"a.jsonl": lines(scored(FOX, 9.5, 2, -1), AGAIN), "dev.jsonl": lines(DOG)}
    found = {"train": [("fox", {"a red fox": 1, "a stone": 0, "a dog": 1})], "dev": [("dog", {"a dog": 1})]}
    scores = {"train": [9.5, -1, 5]}  # of the line where the dog is positive; the higher of two
    refused = [
        ("a.jsonl", scored(FOX, 3, 2, 1, pos_scores=[1, 2]), ":3: 'pos_scores' is not a list of 1"),
        ("a.jsonl", scored(FOX, 3, 2, 1, neg_scores=3), ":3: 'neg_scores' is not a list of 2"),
        ("a.jsonl", scored(FOX, 3, 2, 1, neg_scores=[1, "x"]), ":3: a score of 'neg': 'x' is not a number"),
        ("a.jsonl", scored(FOX, 3, 2, float("nan")), ":3: a score of 'neg': nan is not a number that fp32 can hold"),
    ]


class TestPositivesWithoutAScore(FormatContract):
    name = "flagembedding"
    files = {"a.jsonl": lines(scored(FOX, 9, 2, 1, pos_scores=None))}
    found = {"train": [("fox", {"a red fox": 1, "a dog": 0, "a stone": 0})]}
    scores = {"train": [nan, 2, 1]}
    remarks = ["split train: 1 of 3 candidates have no teacher's score"]


class TestNegativesWithoutAScore(TestPositivesWithoutAScore):
    files = {"a.jsonl": lines(scored(FOX, 9, 2, 1, neg_scores=None))}
    scores = {"train": [9, nan, nan]}
    remarks = ["split train: 2 of 3 candidates have no teacher's score"]
