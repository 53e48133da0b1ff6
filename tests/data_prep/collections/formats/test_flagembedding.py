"""FlagEmbedding: labels 1 and 0 or a teacher's scores, lines of one query merged; every bad line is reported."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.flagembedding import FlagEmbedding
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices, exhaust
from tests.samples import DATA, needs

FOX = {"query": "fox", "pos": ["a red fox"], "neg": ["a dog", "a stone"], "prompt": "Find:", "type": "retrieval"}
DOG = {"query": "dog", "pos": ["a dog"]}
UNUSED = "has texts without a score, so the scores of others are not used"


def write(file: Path, *records: Any, line_end: str = "\n") -> Path:
    file.write_bytes("".join(json.dumps(record) + line_end for record in records).encode())
    return file


def scored(record: dict[str, Any], *scores: float) -> dict[str, Any]:
    positives = len(record["pos"])
    return record | {"pos_scores": scores[:positives], "neg_scores": scores[positives:]}


def test_positives_and_negatives(tmp_path: Path, small: Tokenizer) -> None:
    opened = build("flagembedding", [write(tmp_path / "a.jsonl", FOX, DOG)], tmp_path / "out", small)
    assert choices(opened, "train") == [("fox", {"a red fox": 1, "a dog": 0, "a stone": 0}), ("dog", {"a dog": 1})]
    assert list(opened.corpus.texts()) == ["a red fox", "a dog", "a stone"]  # each text is stored once
    assert opened.manifest["remarks"] == []


def test_a_positive_of_one_line_is_no_negative_of_another(tmp_path: Path, small: Tokenizer) -> None:
    other = {"query": "fox", "pos": ["a dog"], "neg": ["a red fox", "a tree"]}
    opened = build("flagembedding", [write(tmp_path / "a.jsonl", FOX, DOG, other)], tmp_path / "out", small)
    assert choices(opened, "train")[0] == ("fox", {"a red fox": 1, "a dog": 1, "a stone": 0, "a tree": 0})
    assert len(choices(opened, "train")) == 2


def test_scores_are_the_labels(tmp_path: Path, small: Tokenizer) -> None:
    file = write(tmp_path / "a.jsonl", scored(FOX, 9.5, 2, -1), scored(DOG, 7))
    opened = build("flagembedding", [file], tmp_path / "out", small)
    assert choices(opened, "train") == [("fox", {"a red fox": 9.5, "a dog": 2, "a stone": -1}), ("dog", {"a dog": 7})]
    assert opened.manifest["remarks"] == []


def test_scores_of_some_lines_only_are_not_used(tmp_path: Path, small: Tokenizer) -> None:
    half = scored(FOX, 9.5, 2, -1) | {"neg_scores": None}
    train = [write(tmp_path / "a.jsonl", scored(DOG, 7)), write(tmp_path / "b.jsonl", scored(FOX, 9, 2, 1), half)]
    dev = write(tmp_path / "dev.jsonl", scored(DOG, 3))
    opened = build("flagembedding", [*train, dev], tmp_path / "out", small)
    assert choices(opened, "train") == [("dog", {"a dog": 1}), ("fox", {"a red fox": 1, "a dog": 0, "a stone": 0})]
    assert choices(opened, "dev") == [("dog", {"a dog": 3})]
    assert opened.manifest["remarks"] == [f"split train: labels are 1 and 0: {train[1]}:2 {UNUSED}"]


@pytest.mark.parametrize("side", ["pos", "neg"])
def test_scores_of_one_side_only_are_not_used(tmp_path: Path, side: str) -> None:
    half = [{key: value for key, value in scored(FOX, 9, 2, 1).items() if key != f"{side}_scores"}] * 2
    reader = FlagEmbedding([write(tmp_path / "a.jsonl", *half)])
    assert [list(row.labels) for row in reader.groups("train")] == [[1, 0, 0]] * 2
    assert reader.remarks() == [f"split train: labels are 1 and 0: {tmp_path / 'a.jsonl'}:1 {UNUSED}"]


def test_windows_line_ends_a_byte_order_mark_gzip_and_an_array(tmp_path: Path) -> None:
    plain = FlagEmbedding([write(tmp_path / "a.jsonl", FOX, DOG)])
    windows = write(tmp_path / "b.jsonl", FOX, DOG, line_end="\r\n")
    windows.write_bytes(b"\xef\xbb\xbf" + windows.read_bytes() + b"\r\n")
    zipped, array = tmp_path / "c.jsonl.gz", write(tmp_path / "d.json", [FOX, DOG])
    zipped.write_bytes(gzip.compress(windows.read_bytes()))
    for file in (windows, zipped, array):
        other = FlagEmbedding([file])
        for _ in range(2):  # every iterator can be created several times
            assert [row[:3] for row in other.groups("train")] == [row[:3] for row in plain.groups("train")]
            assert [text[:2] for text in other.corpus()] == [text[:2] for text in plain.corpus()]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([1], "not a JSON object"),
        (FOX | {"query": None}, "'query' is missing or not a string"),
        (FOX | {"query": " "}, "'query' is empty"),
        (FOX | {"pos": None}, "'pos' is missing or not a list"),
        (FOX | {"pos": "a red fox"}, "'pos' is missing or not a list"),
        (FOX | {"pos": []}, "'pos' is empty"),
        (FOX | {"neg": [""]}, "'neg' is empty"),
        (FOX | {"neg": [{"text": "a dog"}]}, "'neg' is missing or not a string"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, record: Any, reason: str) -> None:
    with pytest.raises(InputError, match=f"a.jsonl:2: {reason}"):
        exhaust(FlagEmbedding([write(tmp_path / "a.jsonl", DOG, record)]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pos_scores": [1, 2]}, "'pos_scores' is not a list of 1"),
        ({"neg_scores": 3}, "'neg_scores' is not a list of 2"),
        ({"neg_scores": [1, "x"]}, "a score of 'neg': 'x' is not a number"),
        ({"neg_scores": [1, float("nan")]}, "a score of 'neg': nan is not a number that fp32 can hold"),
        ({"neg_scores": [1, 1e39]}, "a score of 'neg': 1e[+]39 is not a number that fp32 can hold"),
    ],
)
def test_a_bad_score_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    file = write(tmp_path / "a.jsonl", scored(DOG, 1), scored(FOX, 3, 2, 1) | change)
    with pytest.raises(InputError, match=f"a.jsonl:2: {reason}"):
        exhaust(FlagEmbedding([file]))


@pytest.mark.parametrize("record", [FOX | {"query": "\ud800"}, FOX | {"neg": ["\ud800"]}])
def test_half_a_character_is_named(tmp_path: Path, small: Tokenizer, record: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a.jsonl:2: has half a character"):
        build("flagembedding", [write(tmp_path / "a.jsonl", DOG, record)], tmp_path / "out", small)


@pytest.mark.slow
@needs("other")
def test_real_samples_have_scores(tmp_path: Path, small: Tokenizer) -> None:
    opened = build("flagembedding", [DATA / "other" / "nq_pairs_sample.jsonl"], tmp_path / "out", small)
    found = choices(opened, "train")
    assert len(found) == 8
    assert sum(max(labels.values()) > 1 for _, labels in found) == 8
