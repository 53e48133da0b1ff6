"""Answer selection in each layout: questions, passages and labels; missing items are counted or reported."""

import json
from typing import Any

import pytest

from deepsiam.data_prep.collections.formats.answer_selection import AnswerSelection
from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import WIKIQA, trecqa
from tests.samples import DATA, needs

FOUND = [("who runs ?", {"a fox runs .": 1.0, "a dog sleeps .": 0.0}), ("who sleeps ?", {"the fox sees a dog .": 0.0})]
ROWS = [(question, text, int(label)) for question, labels in FOUND for text, label in labels.items()]
LISTS = [  # labels of any type
    {
        "query": "who runs ?",
        "passages": [{"text": "a fox runs .", "label": "1.0"}, {"text": "a dog sleeps .", "label": 0}],
    },
    {"query": "who sleeps ?", "passages": [{"text": "the fox sees a dog .", "label": False}]},
]
NUMBERS = {question: f"Q{number}" for number, (question, _) in enumerate(FOUND)}


def passages(*found: object) -> dict[str, str]:
    return {"a.jsonl": lines({"query": "x", "passages": found})}


def none_right(question: str, split: str = "train") -> str:
    return f"split {split}: 1 of 2 queries have no relevant document (the first: {question!r})"


class TestRows(FormatContract):
    name = "answer_selection"
    files = {
        "a.tsv": lines(*ROWS),
        "b.csv": lines("label,question,passage", *(f'{y},{question},"{text}"' for question, text, y in ROWS)),
        "wikiqa.tsv": lines(tuple(WIKIQA), *((NUMBERS[q], q, "D1", "Fox", "D1-0", text, y) for q, text, y in ROWS)),
    }
    given = ["a.tsv", "csv=b.csv", "wikiqa=wikiqa.tsv"]
    found = dict.fromkeys(("train", "csv", "wikiqa"), FOUND)
    remarks = [none_right(FOUND[1][0], split) for split in found]
    refused = [
        ({"a.tsv": "what\tthat\n"}, "a.tsv: not a file of answer selection"),
        ({"a.tsv": "x\ty\t1\nx\tz\t0_1\n"}, "a.tsv:2: label '0_1' is neither 1 nor 0"),
        ({"a.tsv": "x\ty\t1\nx\tz\t2\n"}, "a.tsv:2: label '2' is neither 1 nor 0"),
        ({"a.tsv": "x\ty\t1\nx\tz\n"}, "a.tsv:2: 2 columns, expected 3"),
        ({"a.tsv": "x\ty\t1\nx\tz\t0\t0\n"}, "a.tsv:2: 4 columns, expected 3"),
        ({"a.tsv": "x\ty\t1\n\tz\t0\n"}, "a.tsv:2: 'question' is empty"),
        ({"a.tsv": "x\ty\t1\nx\t\t0\n"}, "a.tsv:2: 'passage' is empty"),
        ({"a.tsv": "x\ty\t1\nz\ty\t1\nx\tz\t0\n"}, "a.tsv:3: question 'x' came before; sort"),
        ({"a.tsv": "qid\tquestion\ttext\tlabel\n1\tx\ty\t0\n1\tz\ty\t0\n"}, "a.tsv:3: question '1' is another one on"),
    ]


class TestLists(FormatContract):
    name = "answer_selection"
    files = {"a.jsonl": lines(*LISTS)}
    found = {"train": FOUND}
    remarks = [none_right(FOUND[1][0])]
    refused = [
        (passages(), "a.jsonl:1: has no passages"),
        (passages("y"), "a.jsonl:1: 'passages' is missing or not a list of objects"),
        (passages({"text": "y", "label": [1]}), r"a.jsonl:1: label \[1\] is neither"),
        (passages({"text": "y", "label": float("nan")}), "a.jsonl:1: label nan is neither"),
        (passages({"text": "", "label": 1}), "a.jsonl:1: 'text' is empty"),
        ({"a.jsonl": lines(LISTS[0] | {"query": 1})}, "a.jsonl:1: 'query' is missing or not a string"),
        ({"a.jsonl": lines({"answers": []})}, "a.jsonl: not a file of answer selection"),
    ]


class TestTrecQa(TestLists):  # questions without a passage are left out
    files = {"train.xml": lines(*trecqa(FOUND), "<QApairs id='9'>\n<question>\nwho\t?\n</question>\n</QApairs>")}
    remarks = [
        "split train: left out 1 questions without any passage (the first: {folder}/train.xml:28)",
        *TestLists.remarks,
    ]
    refused = [
        ({"train.xml": "<QApairs id='1'>\n<question>\nx\n</question>\n"}, "l:1: <QApairs> without its end; is the"),
        ({"train.xml": "<QApairs id='1'>\n<QApairs id='2'>\n"}, "train.xml:2: <QApairs id='2'> in the wrong place"),
        ({"train.xml": "<question>\n"}, "train.xml:1: <question> in the wrong place"),
        ({"train.xml": "<!-- -->\n</QApairs>\n"}, "train.xml:2: </QApairs> in the wrong place"),
        ({"train.xml": "<QApairs id='1'>\n<positive>\nx\n</positive>\n</QApairs>\n"}, "l:1: 'question' is empty"),
    ]


def hotpot(**changes: Any) -> dict[str, Any]:
    return {
        "_id": "5a7",
        "question": "which fox?",
        "answer": "red",
        "supporting_facts": [["Red fox", 0], ["Fox", 1], ["Fox", 2]],
        "context": [["Dog", ["It sleeps."]], ["Fox", ["It runs.", " It jumps."]], ["Red fox", ["It is red."]]],
        "type": "bridge",
        "level": "hard",
    } | changes


HOTPOT = "hotpot_train_v1.1.json"
PARAGRAPHS = ["Dog It sleeps.", "Fox It runs. It jumps.", "Red fox It is red."]


def second(reason: str, key: str, value: object) -> tuple[Any, str]:
    """Hotpot's array, whose second element has a bad value."""
    return {HOTPOT: json.dumps([hotpot(), hotpot(**{key: value})])}, f"json:1: element 2: {reason}"


class TestHotpot(FormatContract):  # a paragraph with a supporting fact is right
    name = "answer_selection"
    files = {
        HOTPOT: json.dumps([hotpot(), hotpot(question="and?", supporting_facts=[["Cat", 0]])]),
        "hotpot_dev_distractor_v1.json": json.dumps([hotpot()], indent=1),
    }
    found = {
        "dev": [("which fox?", dict(zip(PARAGRAPHS, [0.0, 1.0, 1.0], strict=True)))],
        "train": [
            ("which fox?", dict(zip(PARAGRAPHS, [0.0, 1.0, 1.0], strict=True))),
            ("and?", dict.fromkeys(PARAGRAPHS, 0.0)),
        ],
    }
    remarks = [none_right("and?")]
    refused = [
        second("'supporting_facts' is missing or not a list of pairs; test sets have none", "supporting_facts", None),
        second("'supporting_facts' is not a list of", "supporting_facts", [[["Fox"], 0]]),
        second(
            "'context' is missing or not a list of pairs", "context", {"title": ["Fox"], "sentences": [["It runs."]]}
        ),
        second("'context' is not a list of", "context", [["Fox", "It runs."]]),
        second("'context' is not a list of", "context", [["Fox", [1]]]),
        second("'context' is empty", "context", [["", [" "]]]),
        second("has no passages", "context", []),
        second("'question' is empty", "question", ""),
    ]


ASKED = [
    {"answer": "Red Fox", "question": "what runs", "uid": "s3q1"},
    {"answer": "dog", "question": "what sleeps", "uid": "s3q2", "tags": ["1tok"]},
]
SLEEPS = {"uid": "s3q2", "contexts": [[0.9, "the dogs sleep"], [0.1, "A Dog, he said"]]}
RUNS = {"uid": "s3q1", "contexts": [[0.9, "the red-fox runs"], [0.1, "a red fox"]]}
QUESTIONS, CONTEXTS = "train_questions.json", "train_contexts.json"


class TestQuasar(FormatContract):  # a passage with the words of the answer is right
    name = "answer_selection"
    files = {QUESTIONS: lines(*ASKED), CONTEXTS: lines(SLEEPS, RUNS)}
    found = {
        "train": [
            ("what sleeps", {"the dogs sleep": 0.0, "A Dog, he said": 1.0}),
            ("what runs", {"the red-fox runs": 0.0, "a red fox": 1.0}),
        ]
    }
    refused = [
        ({CONTEXTS: lines(SLEEPS)}, "questions.json:1: uid 's3q1' has no contexts in .*train_contexts.json"),
        (CONTEXTS, SLEEPS, ":3: uid 's3q2' is not in .*, or came before"),
        ({CONTEXTS: lines(RUNS | {"uid": "s3q9"})}, "contexts.json:1: uid 's3q9' is not in .*train_questions.json"),
        ({CONTEXTS: lines(SLEEPS, RUNS | {"contexts": []})}, "contexts.json:2: has no passages"),
        ({CONTEXTS: lines({"contexts": []})}, "contexts.json:1: 'uid' is missing"),
        ({CONTEXTS: lines(RUNS | {"contexts": ["a"]})}, "contexts.json:1: 'contexts' is missing or not a list of"),
        ({CONTEXTS: lines(RUNS | {"contexts": [[1, ""]]})}, "contexts.json:1: 'contexts' is empty"),
        ({QUESTIONS: lines(ASKED[0] | {"answer": ""})}, "train_questions.json:1: 'answer' is empty"),
        ([QUESTIONS], "name one file of questions and one of contexts"),
        ([QUESTIONS, f"dev={CONTEXTS}"], "name one file of questions and one of contexts"),
        ([QUESTIONS, CONTEXTS, CONTEXTS], "name one file of questions and one of contexts"),
    ]


@pytest.mark.slow
@needs("other")
def test_real_questions() -> None:
    reader = AnswerSelection([DATA / "other" / f"trecqa_{split}.jsonl" for split in ("train", "dev")])
    labels = {split: [row.labels for row in reader.groups(split)] for split in reader.splits()}
    assert {split: (len(found), sum(map(sum, found))) for split, found in labels.items()} == {
        "train": (93, 348),
        "dev": (81, 222),
    }
    assert sum(not any(row) for row in labels["train"]) == 10
