"""DSTC7: turns of speakers, options, answers and candidate pools in tables; every bad item is reported."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.dstc7 import Dstc7
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices
from tests.data_prep.collections.raw_formats import dstc7_item, dstc7_option


def option(number: int) -> dict[str, str]:
    return dstc7_option(number, f"answer {number}")


def example(number: int = 1, right: int = 7, options: int = 100, **changes: Any) -> dict[str, Any]:
    said = [(1, "hi"), (1, "my disk is full"), (2, "which one?"), (1, "this")]
    item = dstc7_item(number, said, [f"answer {i}" for i in range(options)], f"answer {right}")
    return {key: value for key, value in (item | changes).items() if value is not None}


def write(file: Path, items: list[Any]) -> Path:
    file.write_text(json.dumps(items, indent=4))
    return file


def test_the_messages_of_a_speaker_are_one_turn(tmp_path: Path) -> None:
    reader = Dstc7([write(tmp_path / "ubuntu_train_subtask_1.json", [example()])])
    assert [text.parts for text in reader.queries()] == [["hi my disk is full", "which one?", "this"]]


def test_a_hundred_options_one_of_them_right(tmp_path: Path, small: Tokenizer) -> None:
    train = write(tmp_path / "ubuntu_train_subtask_1.json", [example(1), example(2, right=3)])
    dev = write(tmp_path / "ubuntu_dev_subtask_1.json", [example(1, right=9)])
    opened = build("dstc7", [train, dev], tmp_path / "out", small)
    expected = {f"answer {number}": 0.0 for number in range(100)}
    said = "hi my disk is full which one? this"
    assert choices(opened, "train") == [(said, expected | {"answer 7": 1.0}), (said, expected | {"answer 3": 1.0})]
    assert choices(opened, "dev") == [(said, expected | {"answer 9": 1.0})]
    assert (len(opened.corpus), len(opened.queries)) == (100, 1)
    assert len(opened.pool("dev")) == 100


def test_a_right_answer_beside_the_options_is_added_and_subtask_4_may_have_none(
    tmp_path: Path, small: Tokenizer
) -> None:
    items = [example(right=5, options=2), example(options=2, scenario=4, **{"options-for-correct-answers": []})]
    opened = build("dstc7", [write(tmp_path / "train.json", items)], tmp_path / "out", small)
    assert [list(labels.items()) for _, labels in choices(opened, "train")] == [
        [("answer 5", 1.0), ("answer 0", 0.0), ("answer 1", 0.0)],
        [("answer 0", 0.0), ("answer 1", 0.0)],
    ]


def test_a_test_set_has_its_answers_in_a_table(tmp_path: Path, small: Tokenizer) -> None:
    blind = {"options-for-correct-answers": None}
    test = write(tmp_path / "ubuntu_test_subtask_1.json", [example(11, **blind), example(12, **blind)])
    answers = tmp_path / "ubuntu_responses_subtask_1.TSV"
    answers.write_text("12\tID0000000003\tanswer 3 \r\n11\tID0000000007\tanswer 7\r\n")
    opened = build("dstc7", [test, answers], tmp_path / "out", small)
    assert opened.splits() == ["test"]
    right = [[text for text, label in labels.items() if label] for _, labels in choices(opened, "test")]
    assert right == [["answer 7"], ["answer 3"]]
    assert str(answers) in [record["file"] for record in opened.manifest["inputs"]]
    with pytest.raises(
        InputError, match="test_subtask_1.json:2: element 1: without 'options-for-correct-answers'; .*its answers"
    ):
        build("dstc7", [test], tmp_path / "other", small)
    answers.write_text("12\tID0000000003\tanswer 3\n")
    with pytest.raises(InputError, match="without 'options-for-correct-answers'"):
        build("dstc7", [test, answers], tmp_path / "other", small)


def test_the_candidate_pool_of_subtask_2(tmp_path: Path, small: Tokenizer) -> None:
    items = [example(1, options=0), example(2, right=3, **{"options-for-next": None})]
    train = write(tmp_path / "ubuntu_train_subtask_2.json", items)
    pool = tmp_path / "candidates.tsv.gz"
    lines = [f"ID{number:010}\tanswer {number}\n" for number in range(20)]
    pool.write_bytes(gzip.compress("".join([*lines, "ID0000000099\tanswer 4\n"]).encode()))  # one text under two ids
    opened = build("dstc7", [train, pool], tmp_path / "out", small)
    assert [labels for _, labels in choices(opened, "train")] == [{"answer 7": 1.0}, {"answer 3": 1.0}]
    assert [opened.corpus.text(i) for i in opened.pool("train").tolist()] == [f"answer {i}" for i in range(20)]
    with pytest.raises(
        InputError, match="subtask_2.json:2: element 1: without 'options-for-next'; .*the candidates too"
    ):
        build("dstc7", [train], tmp_path / "other", small)
    pool.write_bytes(gzip.compress("".join(lines[:5]).encode()))
    with pytest.raises(InputError, match="subtask_2.json:2: element 1: 'answer 7' is not in the candidate pool"):
        build("dstc7", [train, pool], tmp_path / "other", small)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ([1], "not a JSON object"),
        (example(**{"messages-so-far": None}), "'messages-so-far' is missing or not a list"),
        (example(**{"messages-so-far": []}), "'messages-so-far' is empty"),
        (example(**{"messages-so-far": ["hi"]}), "'messages-so-far' is missing or not a list of objects"),
        (example(**{"messages-so-far": [{"speaker": "a"}]}), "'utterance' is missing or not a string"),
        (example(**{"messages-so-far": [{"speaker": "a", "utterance": " "}]}), "'utterance' is empty"),
        (example(**{"options-for-next": {"a": 1}}), "'options-for-next' is missing or not a list"),
        (example(**{"options-for-next": [{"utterance": 7}]}), "'utterance' is missing or not a string"),
        (example(**{"options-for-correct-answers": []}), "without 'options-for-correct-answers'"),
    ],
)
def test_a_bad_item_is_named(tmp_path: Path, small: Tokenizer, item: Any, reason: str) -> None:
    file = write(tmp_path / "train.json", [example(options=1), item])
    line = 2 + len(json.dumps([example(options=1)], indent=4).split("\n")) - 2
    with pytest.raises(InputError, match=f"train.json:{line}: element 2: {reason}"):
        build("dstc7", [file], tmp_path / "out", small)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("a\n", "t.tsv:1: 1 columns, expected candidate-id TAB utterance, or"),
        ("a\tb\tc\td\n", "t.tsv:1: 4 columns, expected"),
        ("a\tb\na\tb\tc\n", "t.tsv:2: 3 columns, the first line has 2"),
        ("a\tb\nc\t\n", "t.tsv:2: 'utterance' is empty"),
        ("", "t.tsv: is empty"),
    ],
)
def test_a_bad_table_is_named(tmp_path: Path, small: Tokenizer, table: str, reason: str) -> None:
    (tmp_path / "t.tsv").write_text(table)
    file = write(tmp_path / "train.json", [example()])
    with pytest.raises(InputError, match=reason):
        build("dstc7", [file, tmp_path / "t.tsv"], tmp_path / "out", small)


def test_missing_files_are_named(tmp_path: Path, small: Tokenizer) -> None:
    file = write(tmp_path / "train.json", [example()])
    with pytest.raises(InputError, match="nowhere.json: no such file"):
        build("dstc7", [tmp_path / "nowhere.json"], tmp_path / "out", small)
    with pytest.raises(InputError, match=r"nowhere.tsv: cannot read: No such file"):
        build("dstc7", [file, tmp_path / "nowhere.tsv"], tmp_path / "out", small)
    with pytest.raises(InputError, match=r"a.tsv: name the .json files"):
        build("dstc7", [tmp_path / "a.tsv"], tmp_path / "out", small)
