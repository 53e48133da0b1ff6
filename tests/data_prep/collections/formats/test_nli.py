"""NLI, QQP, RTE, SICK: columns and labels of each; pairs that are left out are counted."""

from collections import Counter

import pytest

from deepsiam.data_prep.collections.formats.nli import NLI, QQP, RTE, Nli
from tests.data_prep.collections import raw_formats
from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import MNLI, PARSES, SICK, mnli
from tests.samples import DATA, needs

SNLI_TEXT = [
    "gold_label",
    *PARSES,
    "sentence1",
    "sentence2",
    "captionID",
    "pairID",
    *(f"label{i}" for i in range(1, 6)),
]
SNLI = [(label, {"gold_label": label, "sentence1": "a fox", "sentence2": text, "annotator_labels": ["neutral"]})
        for text, label in [("a", "-"), ("b", "entailment"), ("c", "-"), ("d", "contradiction")]]  # fmt: skip
TRAIN = "train.tsv"
MATCHED = [TRAIN, "dev_matched.tsv", "dev_mismatched.tsv", "multinli_1.0_dev_mismatched.txt", "dev_matched_mine.tsv"]


def table(*rows: list[str]) -> str:
    return lines(*map(tuple, rows))


def pair(first: str, second: str, label: object) -> dict[str, object]:
    return {"premise": first, "hypothesis": second, "label": label}


class TestMnli(FormatContract):  # a pair is a group and its class the label; annotators may differ
    name = "nli"
    files = {
        TRAIN: table(
            MNLI,
            mnli("a fox runs", '"it" runs', "neutral"),
            mnli("a fox runs", "it sleeps", "contradiction"),
            mnli("a fox runs", '"it" runs', "entailment"),
        )
    }
    found = {
        "train": [
            ("a fox runs", {'"it" runs': 1.0}),
            ("a fox runs", {"it sleeps": 2.0}),
            ("a fox runs", {'"it" runs': 0.0}),
        ]
    }
    refused = [
        (TRAIN, tuple(mnli("x", "y", "maybe")), ":5: gold_label 'maybe' is not one of entailment, neutral,"),
        (TRAIN, tuple(mnli("x", "y", "1")), ":5: gold_label '1' is not one of entailment, neutral"),
        (TRAIN, tuple(mnli("x", " ", "neutral")), ":5: 'sentence2' is empty"),
        (TRAIN, tuple(mnli("x", "y", "neutral")[:-1]), ":5: 'gold_label' is missing; is the row cut short"),
        (TRAIN, tuple(mnli("x", "y", "neutral")[:9]), ":5: 'sentence2' is missing"),
        (TRAIN, (*mnli("x", "y", "neutral"), "neutral"), ":5: 13 columns, the header has 12"),
        ({TRAIN: "0\ta\tb\tneutral\n"}, "train.tsv: has no columns question1 and question2, or .* in its first line"),
        ({TRAIN: table(mnli("a", "b", "neutral"))}, "train.tsv:1: two columns are named 'neutral'; is this line a"),
        ({TRAIN: table(raw_formats.QQP[:-1], ["0", "1", "2", "a", "b"])}, "has no column gold_label, .*test sets"),
        (
            {TRAIN: table(["sentence1", "sentence2", "label"], ["a", "b", "1"])},
            "v:2: label '1' is not one of",
        ),  # GLUE's
        ({TRAIN: lines(pair("a", "b", -1))}, "the input contains no texts"),
        ({TRAIN: lines(pair("a", "b", 0), pair("a", "b", "٢"))}, "train.tsv:2: label '٢' is not one of entailment"),
        ({TRAIN: lines(pair("a", "b", 0), pair("a", "b", 3))}, "train.tsv:2: label 3 is not one of entailment"),
    ]


class TestSnli(FormatContract):  # pairs without a gold label are left out and counted
    name = "nli"
    files = {"snli_1.0_train.jsonl": lines(*(record for _, record in SNLI))}
    found = {"train": [("a fox", {"b": 0.0}), ("a fox", {"d": 2.0})]}
    remarks = ["split train: left out 2 pairs without a gold label (the first: {folder}/snli_1.0_train.jsonl:1)"]
    classes = NLI
    refused = [
        (
            {"snli_1.0_train.jsonl": lines(*[SNLI[0][1]] * 2)},
            "corpus: the input contains no texts: .*l; split train: left out 2 pairs without a gold label",
        )
    ]


class TestSnliText(TestSnli):  # with fewer annotators than the header has columns for
    files = {
        "snli_1.0_train.txt": table(
            SNLI_TEXT, *([label, "", "", "", "", "a fox", str(record["sentence2"]), "1", "2"] for label, record in SNLI)
        )
    }
    remarks = ["split train: left out 2 pairs without a gold label (the first: {folder}/snli_1.0_train.txt:2)"]
    refused = []


class TestQqp(FormatContract):  # leaves out rows that a line break has cut
    name = "nli"
    files = {
        TRAIN: table(
            raw_formats.QQP,
            ["0", "1", "2", "is it a fox?", "is this a fox?", "1"],
            ["1", "3", "4", "how does", "", "0"],
            ["2", "5", "6", "where"],
            ["is it?", "0"],
            ["3", "7", "8", "fox?", "dog?", "0"],
        )
    }
    found = {"train": [("is it a fox?", {"is this a fox?": 1.0}), ("fox?", {"dog?": 0.0})]}
    classes = QQP
    remarks = ["split train: left out 3 pairs cut short, or with an empty question (the first: {folder}/train.tsv:3)"]


class TestSick(FormatContract):  # has its splits in a column
    name = "nli"
    files = {
        "SICK.txt": table(
            SICK,
            ["1", "a fox", "a dog", "NEUTRAL", "4.5", "TRAIN"],
            ["2", "a fox", "no fox", "CONTRADICTION", "3.2", "TRIAL"],
            ["3", "a red fox", "a fox", "ENTAILMENT", "4.9", "TEST"],
            ["4", "a dog", "a fox", "NEUTRAL", "4.5", "TRAIN"],
        )
    }
    found = {
        "train": [("a fox", {"a dog": 1.0}), ("a dog", {"a fox": 1.0})],
        "dev": [("a fox", {"no fox": 2.0})],
        "test": [("a red fox", {"a fox": 0.0})],
    }
    refused = [
        ("SICK.txt", ("1", "a", "b", "NEUTRAL", "4.5", "OTHER"), ":6: SemEval_set 'OTHER' is not one of TRAIN"),
        (
            {"SICK.txt": table(SICK, ["1", "a", "b", "NEUTRAL", "4.5", "TRAIN"])},
            "split dev: the input has no judgements of it: .*SICK.txt$",
        ),
    ]


class TestAnnotatedSick(FormatContract):
    name = "nli"
    files = {
        "SICK_test_annotated.txt": table(
            ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"],
            ["1", "a fox", "a dog", "4.5", "NEUTRAL"],
        )
    }
    found = {"test": [("a fox", {"a dog": 1.0})]}


class TestMatchedAndMismatched(FormatContract):  # are different splits
    name = "nli"
    files = {name: table(MNLI, mnli("x", name, "neutral")) for name in MATCHED}
    given = [*MATCHED[:4], f"mine={MATCHED[4]}"]
    found = {
        "train": [("x", {MATCHED[0]: 1.0})],
        "dev_matched": [("x", {MATCHED[1]: 1.0})],
        "dev_mismatched": [("x", {MATCHED[2]: 1.0}), ("x", {MATCHED[3]: 1.0})],
        "mine": [("x", {MATCHED[4]: 1.0})],
    }


class TestRte(FormatContract):
    name = "nli"
    files = {TRAIN: table(raw_formats.RTE, ["0", "a", "b", "entailment"], ["1", "a", "c", "not_entailment"])}
    found = {"train": [("a", {"b": 0.0}), ("a", {"c": 1.0})]}
    classes = RTE


class TestNumbers(FormatContract):
    name = "nli"
    files = {"train.jsonl": lines(pair("a", "b", -1), pair("a", "c", 2), pair("a", "d", 0))}
    found = {"train": [("a", {"c": 2.0}), ("a", {"d": 0.0})]}
    remarks = ["split train: left out 1 pairs without a gold label (the first: {folder}/train.jsonl:1)"]
    classes = NLI


class TestNumbersOfQuora(FormatContract):
    name = "nli"
    files = {"quora.jsonl": lines({"question1": "a", "question2": "b", "label": 0, "idx": 0})}
    found = {"train": [("a", {"b": 0.0})]}
    classes = QQP


class TestEntailedAlone(FormatContract):
    name = "nli"
    files = {"a.jsonl": lines(*[pair("a", "b", "entailment")] * 3)}
    found = {"train": [("a", {"b": 0.0})] * 3}
    classes = NLI


class TestEntailedFirst(FormatContract):  # classes do not depend on the first label, nor on the first file
    name = "nli"
    files = {
        **TestEntailedAlone.files,
        "dev.jsonl": lines(pair("a", "b", "entailment"), pair("a", "c", "not_entailment")),
    }
    found = {"train": [("a", {"b": 0.0})] * 3, "dev": [("a", {"b": 0.0}), ("a", {"c": 1.0})]}
    classes = RTE
    refused = [("dev.jsonl", pair("a", "b", 0), ":3: label 0 is not one of entailment, not_entailment")]


@pytest.mark.slow
@needs("other")
@pytest.mark.parametrize(("name", "classes", "counts"), [("rte", RTE, (905, 862)), ("sick", NLI, (1443, 2818, 739))])
def test_real_pairs(name: str, classes: tuple[str, ...], counts: tuple[int, ...]) -> None:
    reader = Nli([DATA / "other" / f"{name}_train.jsonl"])
    assert reader.classes == classes
    assert Counter(row.labels[0] for row in reader.groups("train")) == dict(enumerate(map(int, counts)))
