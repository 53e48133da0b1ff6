"""DPR: an array or lines, titles; questions without a positive are counted."""

import json
from typing import Any

from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import dpr_passage

TRAIN = "biencoder-nq-train.json"


def record(question: str = "who sleeps", **changes: Any) -> dict[str, Any]:
    return {
        "dataset": "nq_train",
        "question": question,
        "answers": ["a dog"],
        "positive_ctxs": [dpr_passage("sleeps."), dpr_passage("Dogs sleep.", None)],
        "negative_ctxs": [dpr_passage("runs.")],
        "hard_negative_ctxs": [dpr_passage("jumps.")],
    } | changes


def second(reason: str, **changes: Any) -> tuple[Any, str]:
    """An array whose second element has changes."""
    return {TRAIN: json.dumps([record(), record(**changes)])}, f"{TRAIN}:1: element 2: {reason}"


RIGHTLESS = record("where", positive_ctxs=[])
JUMPS = record("who jumps", positive_ctxs=[dpr_passage("jumps.")])
ONLY_POSITIVES = {k: v for k, v in record("who runs", negative_ctxs=[]).items() if k != "hard_negative_ctxs"}
POSITIVES = {"Fox sleeps.": 1.0, "Dogs sleep.": 1.0}


class TestDpr(FormatContract):
    name = "dpr"
    files = {
        TRAIN: json.dumps([record(), JUMPS], indent=4),
        "dev.jsonl": lines(RIGHTLESS, record(), RIGHTLESS, ONLY_POSITIVES),
    }
    found = {
        "train": [
            ("who sleeps", POSITIVES | {"Fox jumps.": 0.0, "Fox runs.": 0.0}),  # hard negatives before others
            ("who jumps", {"Fox jumps.": 1.0, "Fox runs.": 0.0}),  # it was listed as a negative too
        ],
        "dev": [("who sleeps", POSITIVES | {"Fox jumps.": 0.0, "Fox runs.": 0.0}), ("who runs", POSITIVES)],
    }
    remarks = ["split dev: left out 2 questions without a positive passage (the first: {folder}/dev.jsonl:1)"]
    refused = [
        second("'question' is empty", question=""),
        second("'positive_ctxs' is missing or not a list of objects", positive_ctxs=None),
        second("'negative_ctxs' is missing or not a list of objects", negative_ctxs=["runs."]),
        second("'hard_negative_ctxs' is missing or not a list", hard_negative_ctxs={"text": "x"}),
        second("'text' is empty", negative_ctxs=[dpr_passage(" ", "")]),
    ]
