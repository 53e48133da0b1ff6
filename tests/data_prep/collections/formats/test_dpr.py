"""DPR: an array or lines, titles; questions without a positive are counted."""

import json
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
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


JUMPS = record("who jumps", positive_ctxs=[dpr_passage("jumps.")])
ONLY_POSITIVES = {k: v for k, v in record("who runs", negative_ctxs=[]).items() if k != "hard_negative_ctxs"}
POSITIVES = {"Fox sleeps.": 1.0, "Dogs sleep.": 1.0}


class TestDpr(FormatContract):
    name = "dpr"
    files = {TRAIN: json.dumps([record(), JUMPS], indent=4), "dev.jsonl": lines(record(), ONLY_POSITIVES)}
    found = {
        "train": [
            ("who sleeps", POSITIVES | {"Fox jumps.": 0.0, "Fox runs.": 0.0}),  # hard negatives before others
            ("who jumps", {"Fox jumps.": 1.0, "Fox runs.": 0.0}),  # it was listed as a negative too
        ],
        "dev": [("who sleeps", POSITIVES | {"Fox jumps.": 0.0, "Fox runs.": 0.0}), ("who runs", POSITIVES)],
    }
    refused = [
        ({TRAIN: json.dumps([record(), [1]])}, "train.json:1: element 2: not a JSON object"),
        ({TRAIN: json.dumps([record(), record()])[:-40]}, "train.json:1: element 2: not JSON"),
        second("'question' is empty", question=""),
        second("'question' is missing or not a string", question=None),
        second("'positive_ctxs' is missing or not a list of objects", positive_ctxs=None),
        second("'negative_ctxs' is missing or not a list of objects", negative_ctxs=["runs."]),
        second("'hard_negative_ctxs' is missing or not a list", hard_negative_ctxs={"text": "x"}),
        second("'text' is missing or not a string", negative_ctxs=[{"title": "Fox"}]),
        second("'title' is not a string", negative_ctxs=[{"title": ["Fox"], "text": "x"}]),
        second("'text' is empty", negative_ctxs=[dpr_passage(" ", "")]),
    ]


def test_questions_without_a_positive_are_left_out_and_counted(tmp_path: Path, small: Tokenizer) -> None:
    file = tmp_path / "train.json"
    file.write_text(json.dumps([record("a", positive_ctxs=[]), record(), record("b", positive_ctxs=[])]))
    opened = build("dpr", [file], tmp_path / "out", small)
    assert list(opened.queries.texts()) == ["who sleeps"]
    assert opened.manifest["remarks"] == [
        f"split train: left out 2 questions without a positive passage (the first: {file}:1: element 1)"
    ]
