"""DPR: an array or lines, titles; questions without a positive are counted, every bad element is reported."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.dpr import Dpr
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices, exhaust
from tests.data_prep.collections.raw_formats import dpr_passage


def record(question: str = "who sleeps", **changes: Any) -> dict[str, Any]:
    return {
        "dataset": "nq_train",
        "question": question,
        "answers": ["a dog"],
        "positive_ctxs": [dpr_passage("sleeps."), dpr_passage("Dogs sleep.", None)],
        "negative_ctxs": [dpr_passage("runs.")],
        "hard_negative_ctxs": [dpr_passage("jumps.")],
    } | changes


FOUND = {"Fox sleeps.": 1.0, "Dogs sleep.": 1.0, "Fox jumps.": 0.0, "Fox runs.": 0.0}


@pytest.mark.parametrize("indent", [None, 4])
def test_titles_come_first_and_hard_negatives_before_others(tmp_path: Path, small: Tokenizer, indent: int) -> None:
    file = tmp_path / "biencoder-nq-train.json"
    file.write_text(json.dumps([record(), record("who jumps", positive_ctxs=[dpr_passage("jumps.")])], indent=indent))
    dev = tmp_path / "biencoder-nq-dev.json.gz"
    dev.write_bytes(gzip.compress(json.dumps([record("who runs")]).encode()))
    opened = build("dpr", [file, dev], tmp_path / "out", small)
    assert choices(opened, "train") == [
        ("who sleeps", FOUND),
        ("who jumps", {"Fox jumps.": 1.0, "Fox runs.": 0.0}),  # it was listed as a negative too
    ]
    assert choices(opened, "dev") == [("who runs", FOUND)]
    assert opened.manifest["remarks"] == []


def test_json_lines_with_windows_line_ends_and_a_byte_order_mark(tmp_path: Path, small: Tokenizer) -> None:
    file = tmp_path / "train.jsonl"
    lines = [record(), record("who jumps", negative_ctxs=[])]
    del lines[1]["hard_negative_ctxs"]
    file.write_bytes(b"\xef\xbb\xbf" + b"".join(json.dumps(line).encode() + b"\r\n" for line in lines))
    opened = build("dpr", [file], tmp_path / "out", small)
    assert choices(opened, "train") == [("who sleeps", FOUND), ("who jumps", dict(list(FOUND.items())[:2]))]


def test_questions_without_a_positive_are_left_out_and_counted(tmp_path: Path, small: Tokenizer) -> None:
    file = tmp_path / "train.json"
    file.write_text(json.dumps([record("a", positive_ctxs=[]), record(), record("b", positive_ctxs=[])]))
    opened = build("dpr", [file], tmp_path / "out", small)
    assert list(opened.queries.texts()) == ["who sleeps"]
    assert opened.manifest["remarks"] == [
        f"split train: left out 2 questions without a positive passage (the first: {file}:1: element 1)"
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([1], "not a JSON object"),
        (record(question=""), "'question' is empty"),
        (record(question=None), "'question' is missing or not a string"),
        (record(positive_ctxs=None), "'positive_ctxs' is missing or not a list of objects"),
        (record(negative_ctxs=["runs."]), "'negative_ctxs' is missing or not a list of objects"),
        (record(hard_negative_ctxs={"text": "x"}), "'hard_negative_ctxs' is missing or not a list"),
        (record(negative_ctxs=[{"title": "Fox"}]), "'text' is missing or not a string"),
        (record(negative_ctxs=[dpr_passage("x", ["Fox"])]), "'title' is not a string"),  # type: ignore[arg-type]
        (record(negative_ctxs=[dpr_passage(" ", "")]), "'text' is empty"),
    ],
)
def test_a_bad_element_is_named(tmp_path: Path, bad: Any, reason: str) -> None:
    (tmp_path / "train.json").write_text(json.dumps([record(), bad]))
    with pytest.raises(InputError, match=f"train.json:1: element 2: {reason}"):
        exhaust(Dpr([tmp_path / "train.json"]))


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([record(), record()])[:-40])
    with pytest.raises(InputError, match="train.json:1: element 2: not JSON"):
        exhaust(Dpr([tmp_path / "train.json"]))
