"""DSTC7: turns of speakers, options, answers and candidate pools in tables."""

import json
from typing import Any

from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import dstc7_item

TRAIN, DEV, TEST = (f"ubuntu_{split}_subtask_1.json" for split in ("train", "dev", "test"))
ANSWERS, POOL = "ubuntu_responses_subtask_1.TSV", "candidates.tsv.gz"
SAID = "hi my disk is full which one? this"
BLIND: dict[str, Any] = {"options-for-correct-answers": None}
NO_ANSWER: dict[str, Any] = {"options-for-correct-answers": []}


def example(number: int = 1, right: int = 7, options: int = 100, **changes: Any) -> dict[str, Any]:
    said = [(1, "hi"), (1, "my disk is full"), (2, "which one?"), (1, "this")]
    item = dstc7_item(number, said, [f"answer {i}" for i in range(options)], f"answer {right}")
    return {key: value for key, value in (item | changes).items() if value is not None}


def array(*items: object) -> str:
    return json.dumps(items, indent=4)


def second(reason: str, key: str, value: object = None) -> tuple[Any, str]:
    """An array whose second element is bad, and what is said of its line."""
    good = [example(options=1)]
    content = array(*good, example(**{key: value}))
    line = 2 + len(array(*good).split("\n")) - 2
    return {TRAIN: content}, f"{TRAIN}:{line}: element 2: {reason}"


def labels(right: int, number: int = 100) -> dict[str, float]:
    return {f"answer {i}": float(i == right) for i in range(number)}


class TestOptions(FormatContract):
    name = "dstc7"
    files = {
        TRAIN: array(example(1), example(2, right=3)),
        DEV: array(example(1, right=9)),
        "beside.json": array(example(right=5, options=2), example(options=2, scenario=4, **NO_ANSWER)),
    }
    given = [TRAIN, DEV, "beside=beside.json"]
    found = {
        "train": [(SAID, labels(7)), (SAID, labels(3))],
        "dev": [(SAID, labels(9))],
        # an answer beside the options is added; subtask 4 may have none
        "beside": [(SAID, {"answer 5": 1.0} | labels(5, 2)), (SAID, labels(7, 2))],
    }
    counts = (100, 1)
    parts = [["hi my disk is full", "which one?", "this"]] * 2  # the messages of a speaker are one turn
    refused = [
        second("'messages-so-far' is missing or not a list", "messages-so-far"),
        second("'messages-so-far' is empty", "messages-so-far", []),
        second("'messages-so-far' is missing or not a list of objects", "messages-so-far", ["hi"]),
        second("'utterance' is missing or not a string", "messages-so-far", [{"speaker": "a"}]),
        second("'utterance' is empty", "messages-so-far", [{"speaker": "a", "utterance": " "}]),
        second("'options-for-next' is missing or not a list", "options-for-next", {"a": 1}),
        second("'utterance' is missing or not a string", "options-for-next", [{"utterance": 7}]),
        second("without 'options-for-correct-answers'", "options-for-correct-answers", []),
        ([TRAIN, "nowhere.tsv"], "nowhere.tsv: cannot read: No such file"),
    ]


class TestAnswersInATable(FormatContract):
    name = "dstc7"
    files = {
        TEST: array(example(11, **BLIND), example(12, **BLIND)),
        ANSWERS: "12\tID0000000003\tanswer 3 \n11\tID0000000007\tanswer 7\n",
    }
    found = {"test": [(SAID, labels(7)), (SAID, labels(3))]}
    refused = [
        ({ANSWERS: "12\tID0000000003\tanswer 3\n"}, "without 'options-for-correct-answers'; .*its answers"),
        ({ANSWERS: "a\n"}, ".TSV:1: 1 columns, expected candidate-id TAB utterance, or"),
        ({ANSWERS: "a\tb\tc\td\n"}, ".TSV:1: 4 columns, expected"),
        ({ANSWERS: "a\tb\na\tb\tc\n"}, ".TSV:2: 3 columns, the first line has 2"),
        ({ANSWERS: "a\tb\nc\t\n"}, ".TSV:2: 'utterance' is empty"),
        ([TEST], "test_subtask_1.json:2: element 1: without 'options-for-correct-answers'; .*its answers"),
        ([ANSWERS], "TSV: name the .json files"),
    ]


class TestTheCandidatePoolOfSubtask2(FormatContract):
    name = "dstc7"
    files = {
        TRAIN: array(example(1, options=0), example(2, right=3, **{"options-for-next": None})),
        POOL: lines(*((f"ID{i:010}", f"answer {i}") for i in range(20)), "ID0000000099\tanswer 4"),  # one text, two ids
    }
    found = {"train": [(SAID, {"answer 7": 1.0}), (SAID, {"answer 3": 1.0})]}
    pools = {"train": [f"answer {i}" for i in range(20)]}
    refused = [
        ({POOL: lines(("ID1", "answer 3"))}, "1.json:2: element 1: 'answer 7' is not in the candidate pool"),
        ([TRAIN], "1.json:2: element 1: without 'options-for-next'; .*the candidates too"),
    ]
