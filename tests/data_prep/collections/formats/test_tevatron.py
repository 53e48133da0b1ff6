"""Tevatron's two schemas, and the document_text that its own code reads as an empty text."""

from typing import Any

from deepsiam.data_prep.collections.ids import content_id
from tests.data_prep.collections.formats.contract import FormatContract, lines

FOX = {"docid": "7", "title": "Foxes", "text": "The fox is quick."}
DOG = {"docid": "8", "title": "", "text": "Dogs sleep."}
HEN = {"docid": "9", "text": "A brown hen"}
PASSAGES = [
    {"query_id": "1", "query": "who is quick", "positive_passages": [FOX], "negative_passages": [DOG, HEN, FOX]},
    {"query_id": "2", "query": "who sleeps", "positive_passages": [DOG], "negative_passages": [], "answers": ["dogs"]},
]
UNNAMED = {"title": "Dogs", "text": "They sleep."}
ASLEEP = {"query_id": "3", "query": "who is asleep", "positive_passages": [UNNAMED]}
IDS = [
    {
        "query_id": "1",
        "query_text": "who is quick",
        "positive_document_ids": ["7"],
        "negative_document_ids": ["8", "7"],
    },
    {"query_id": "2", "query_text": "who sleeps", "positive_document_ids": ["8"]},
]
QUICK, SLEEP = "Foxes The fox is quick.", "Dogs sleep."


def third(schema: list[dict[str, Any]], reason: str, **changes: Any) -> tuple[str, dict[str, Any], str]:
    """A third line with changes: what is wrong with it."""
    return "train.jsonl", schema[1] | changes, f":3: {reason}"


class TestPassages(FormatContract):
    name = "tevatron"
    files = {"train.jsonl": lines(*PASSAGES), "dev.JSONL": lines(ASLEEP)}
    given = ["."]
    found = {
        "train": [("who is quick", {QUICK: 1, SLEEP: 0, "A brown hen": 0}), ("who sleeps", {SLEEP: 1})],
        "dev": [("who is asleep", {"Dogs They sleep.": 1})],
    }
    ids = [content_id("Dogs They sleep."), "7", "8", "9"], ["3", "1", "2"]
    refused = [
        third(PASSAGES, "'query_id' is missing, or neither text", query_id=None),
        third(PASSAGES, "'query' is empty", query=" "),
        third(PASSAGES, "has no positive", positive_passages=[]),
        third(PASSAGES, "'positive_passages' is missing or not a list", positive_passages=None),
        third(PASSAGES, "'negative_passages' is missing or not a list", negative_passages={"docid": "7"}),
        third(PASSAGES, "a passage is not a JSON object", negative_passages=["7"]),
        third(PASSAGES, "'text' is missing or not a string", negative_passages=[{"docid": "5"}]),
        third(PASSAGES, "'docid' is missing, or neither text", negative_passages=[{"docid": False, "text": "a"}]),
        ({"train.jsonl": lines({"_id": "1"})}, "l:1: has none of positive_passages, positive_document_ids, docid"),
        ({"train.jsonl": None, "dev.JSONL": None, "a": "", "._b.jsonl": "x"}, "in: no .jsonl file in this folder"),
    ]


class TestIds(FormatContract):
    name = "tevatron"
    files = {
        "train.jsonl": lines(*IDS),
        "corpus.jsonl": lines(FOX, {"docid": "8", "document_text": "Dogs sleep."}, HEN),
    }
    given = ["test=train.jsonl", "corpus.jsonl"]
    found = {"test": [("who is quick", {QUICK: 1, SLEEP: 0}), ("who sleeps", {SLEEP: 1})]}
    ids = ["7", "8", "9"], ["1", "2"]
    refused = [
        third(IDS, "has no positive", positive_document_ids=[]),
        third(IDS, "'positive_document_ids' is missing or not a list", positive_document_ids="8"),
        third(
            IDS, "'negative_document_ids' is missing, or neither text nor a whole number", negative_document_ids=[8.5]
        ),
        third(IDS, "'query_text' is empty", query_text=""),
        ("corpus.jsonl", FOX | {"text": "x"}, ":4: id '7' is already on line 1, of another text"),
        ("corpus.jsonl", {"docid": "5", "title": "Foxes", "body": "The fox"}, ":4: 'text' is missing"),
        ({"corpus.jsonl": lines(FOX, HEN)}, "train.jsonl:1: '8' is not among the documents"),
        (["train.jsonl"], "train.jsonl: name the corpus of its positive_document_ids too"),
        (["corpus.jsonl"], "corpus.jsonl: no file of queries"),
        # a corpus may hold the passages too, if the texts are the same
        (
            {"train.jsonl": lines(*PASSAGES), "corpus.jsonl": lines(DOG | {"text": "Dogs bark."})},
            "train.jsonl:1: id '8' has another text on an earlier line",
        ),
    ]
