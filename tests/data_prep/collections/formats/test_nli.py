"""NLI, QQP, RTE, SICK: columns and labels of each; pairs that are left out are counted, every bad line is reported."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.nli import NLI, QQP, RTE, Nli
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections import raw_formats
from tests.data_prep.collections.choices import choices, exhaust
from tests.data_prep.collections.raw_formats import MNLI, PARSES, SICK, mnli, write_lines, write_tsv
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


def tsv(file: Path, header: list[str], *rows: list[str], line_end: str = "\n") -> Path:
    return write_tsv(file, [header, *rows], line_end)


def jsonl(file: Path, *records: dict[str, object]) -> Path:
    return write_lines(file, records)


def pair(first: str, second: str, label: object) -> dict[str, object]:
    return {"premise": first, "hypothesis": second, "label": label}


def found(reader: Nli, split: str = "train") -> list[tuple[str, str, str]]:
    """The pairs of a split with the names of their classes."""
    documents = {text.id: text.parts[0] for text in reader.corpus()}
    queries = {text.id: text.parts[0] for text in reader.queries()}
    return [
        (queries[row.query], documents[row.candidates[0]], reader.classes[int(row.labels[0])])
        for row in reader.groups(split)
    ]


def test_a_pair_is_a_group_and_its_class_the_label(tmp_path: Path, small: Tokenizer) -> None:
    rows = [
        mnli("a fox runs", '"it" runs', "neutral"),
        mnli("a fox runs", "it sleeps", "contradiction"),
        mnli("a fox runs", '"it" runs', "entailment"),  # annotators may differ
    ]
    file = tsv(tmp_path / "train.tsv", MNLI, *rows, line_end="\r\n")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    opened = build("nli", [file], tmp_path / "out", small)
    assert opened.manifest["classes"] == ["entailment", "neutral", "contradiction"]
    assert choices(opened, "train") == [
        ("a fox runs", {'"it" runs': 1.0}),
        ("a fox runs", {"it sleeps": 2.0}),
        ("a fox runs", {'"it" runs': 0.0}),
    ]
    assert len(opened.queries) == 1


def test_matched_and_mismatched_are_different_splits(tmp_path: Path) -> None:
    names = ["train.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "multinli_1.0_dev_mismatched.txt"]
    files = [tsv(tmp_path / name, MNLI, mnli("x", name, "neutral")) for name in names]
    reader = Nli([*files, Path(f"mine={files[1]}")])
    assert reader.splits() == ["train", "dev_matched", "dev_mismatched", "mine"]
    assert [second for _, second, _ in found(reader, "dev_mismatched")] == names[2:]
    assert [second for _, second, _ in found(reader, "mine")] == ["dev_matched.tsv"]


def test_snli_without_a_gold_label_is_left_out_and_counted(tmp_path: Path, small: Tokenizer) -> None:
    records = [
        {"gold_label": label, "sentence1": "a fox", "sentence2": text, "annotator_labels": ["neutral"]}
        for text, label in [("a", "-"), ("b", "entailment"), ("c", "-"), ("d", "contradiction")]
    ]
    lines = jsonl(tmp_path / "snli_1.0_train.jsonl", *records)
    opened = build("nli", [lines], tmp_path / "out", small)
    assert choices(opened, "train") == [("a fox", {"b": 0.0}), ("a fox", {"d": 2.0})]
    assert list(opened.corpus.texts()) == ["b", "d"]
    remark = f"split train: left out 2 pairs without a gold label (the first: {lines}:1)"
    assert opened.manifest["remarks"] == [remark]
    # the same in the other layout, with fewer annotators than the header has columns for
    rows = [
        [str(record["gold_label"]), "", "", "", "", "a fox", str(record["sentence2"]), "1", "2"] for record in records
    ]
    text = tsv(tmp_path / "snli_1.0_train.txt", SNLI_TEXT, *rows)
    assert found(Nli([text])) == [("a fox", "b", "entailment"), ("a fox", "d", "contradiction")]


def test_qqp_leaves_out_rows_that_a_line_break_has_cut(tmp_path: Path, small: Tokenizer) -> None:
    rows = [
        ["0", "1", "2", "is it a fox?", "is this a fox?", "1"],
        ["1", "3", "4", "how does", "", "0"],
        ["2", "5", "6", "where"],
        ["is it?", "0"],
        ["3", "7", "8", "fox?", "dog?", "0"],
    ]
    file = tsv(tmp_path / "train.tsv", raw_formats.QQP, *rows)
    opened = build("nli", [file], tmp_path / "out", small)
    assert opened.manifest["classes"] == ["not_duplicate", "duplicate"]
    assert choices(opened, "train") == [("is it a fox?", {"is this a fox?": 1.0}), ("fox?", {"dog?": 0.0})]
    assert opened.manifest["remarks"] == [
        f"split train: left out 3 pairs cut short, or with an empty question (the first: {file}:3)"
    ]


def test_rte_and_numbers_of_classes(tmp_path: Path) -> None:
    rows = [["0", "a", "b", "entailment"], ["1", "a", "c", "not_entailment"]]
    reader = Nli([tsv(tmp_path / "train.tsv", raw_formats.RTE, *rows)])
    assert reader.classes == RTE
    assert found(reader) == [("a", "b", "entailment"), ("a", "c", "not_entailment")]
    zipped = tmp_path / "dev.tsv.gz"
    zipped.write_bytes(gzip.compress((tmp_path / "train.tsv").read_bytes()))
    assert found(Nli([zipped]), "dev") == found(reader)

    numbered = Nli([jsonl(tmp_path / "train.jsonl", pair("a", "b", -1), pair("a", "c", 2), pair("a", "d", 0))])
    assert numbered.classes == NLI
    assert found(numbered) == [("a", "c", "contradiction"), ("a", "d", "entailment")]
    assert numbered.remarks()[0].startswith("split train: left out 1 pairs without a gold label")
    quora = jsonl(tmp_path / "quora.jsonl", {"question1": "a", "question2": "b", "label": 0, "idx": 0})
    assert Nli([quora]).classes == QQP
    assert found(Nli([quora])) == [("a", "b", "not_duplicate")]


def test_classes_do_not_depend_on_the_first_label(tmp_path: Path) -> None:
    entailed = [pair("a", "b", "entailment")] * 3
    assert Nli([jsonl(tmp_path / "a.jsonl", *entailed)]).classes == NLI
    assert Nli([jsonl(tmp_path / "b.jsonl", *entailed, pair("a", "c", "not_entailment"))]).classes == RTE
    assert Nli([tmp_path / "a.jsonl", Path(f"dev={tmp_path / 'b.jsonl'}")]).classes == RTE


def test_sick_has_its_splits_in_a_column(tmp_path: Path, small: Tokenizer) -> None:
    rows = [
        ["1", "a fox", "a dog", "NEUTRAL", "4.5", "TRAIN"],
        ["2", "a fox", "no fox", "CONTRADICTION", "3.2", "TRIAL"],
        ["3", "a red fox", "a fox", "ENTAILMENT", "4.9", "TEST"],
        ["4", "a dog", "a fox", "NEUTRAL", "4.5", "TRAIN"],
    ]
    opened = build("nli", [tsv(tmp_path / "SICK.txt", SICK, *rows)], tmp_path / "out", small)
    assert opened.splits() == ["dev", "test", "train"]
    assert choices(opened, "train") == [("a fox", {"a dog": 1.0}), ("a dog", {"a fox": 1.0})]
    assert choices(opened, "dev") == [("a fox", {"no fox": 2.0})]
    assert choices(opened, "test") == [("a red fox", {"a fox": 0.0})]
    with pytest.raises(InputError, match="SICK.txt:2: SemEval_set 'OTHER' is not one of TRAIN"):
        exhaust(Nli([tsv(tmp_path / "SICK.txt", SICK, [*rows[0][:-1], "OTHER"])]))
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    test = tsv(tmp_path / "SICK_test_annotated.txt", header, ["1", "a fox", "a dog", "4.5", "NEUTRAL"])
    assert found(Nli([test]), "test") == [("a fox", "a dog", "neutral")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (mnli("x", "y", "maybe"), "gold_label 'maybe' is not one of entailment, neutral, contradiction"),
        (mnli("x", "y", "1"), "gold_label '1' is not one of entailment, neutral"),
        (mnli("x", "y", ""), "gold_label '' is not one of"),
        (mnli("x", " ", "neutral"), "'sentence2' is empty"),
        (mnli("x", "y", "neutral")[:-1], "'gold_label' is missing; is the row cut short"),
        (mnli("x", "y", "neutral")[:9], "'sentence2' is missing"),
        ([*mnli("x", "y", "neutral"), "neutral"], "13 columns, the header has 12"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=f"train.tsv:3: {reason}"):
        exhaust(Nli([tsv(tmp_path / "train.tsv", MNLI, mnli("a", "b", "neutral"), row)]))


def test_labels_of_another_task_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train.jsonl:2: label 3 is not one of entailment"):
        exhaust(Nli([jsonl(tmp_path / "train.jsonl", pair("a", "b", 0), pair("a", "b", 3))]))
    both = [jsonl(tmp_path / "a.jsonl", pair("a", "b", "not_entailment")), tmp_path / "train.jsonl"]
    with pytest.raises(InputError, match="train.jsonl:1: label 0 is not one of entailment, not_entailment"):
        exhaust(Nli(both))
    numbers = tsv(tmp_path / "wnli.tsv", ["sentence1", "sentence2", "label"], ["a", "b", "1"])
    with pytest.raises(InputError, match="wnli.tsv:2: label '1' is not one of"):  # GLUE's orders differ
        exhaust(Nli([numbers]))


def test_files_without_header_or_labels_are_refused(tmp_path: Path, small: Tokenizer) -> None:
    with pytest.raises(InputError, match="a.tsv: has no columns question1 and question2, or .* in its first line"):
        Nli([tsv(tmp_path / "a.tsv", ["0", "a", "b", "neutral"])])
    with pytest.raises(InputError, match="a.tsv:1: two columns are named 'neutral'; is this line a header"):
        Nli([tsv(tmp_path / "a.tsv", mnli("a", "b", "neutral"))])
    with pytest.raises(InputError, match="test.tsv: has no column gold_label, .*test sets"):
        Nli([tsv(tmp_path / "test.tsv", raw_formats.QQP[:-1], ["0", "1", "2", "a", "b"])])
    with pytest.raises(InputError, match="nowhere: no such file"):
        Nli([tmp_path / "nowhere"])
    hidden = jsonl(tmp_path / "test.jsonl", pair("a", "b", -1))
    with pytest.raises(InputError, match="the input contains no texts"):
        build("nli", [hidden], tmp_path / "out", small)


@pytest.mark.slow
@needs("other")
@pytest.mark.parametrize(("name", "classes", "counts"), [("rte", RTE, (905, 862)), ("sick", NLI, (1443, 2818, 739))])
def test_real_pairs(name: str, classes: tuple[str, ...], counts: tuple[int, ...]) -> None:
    reader = Nli([DATA / "other" / f"{name}_train.jsonl"])
    assert reader.classes == classes
    assert Counter(row.labels[0] for row in reader.groups("train")) == dict(enumerate(map(int, counts)))
