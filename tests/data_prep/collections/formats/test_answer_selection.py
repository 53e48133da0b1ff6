"""Answer selection in each layout: questions, passages and labels; missing items are counted or reported."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.answer_selection import AnswerSelection
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices, exhaust
from tests.data_prep.collections.raw_formats import write_lines, write_trecqa, write_wikiqa
from tests.samples import DATA, needs

FOUND = [("who runs ?", {"a fox runs .": 1.0, "a dog sleeps .": 0.0}), ("who sleeps ?", {"the fox sees a dog .": 0.0})]
NONE_RIGHT = "split train: 1 of 2 queries have no relevant document (the first: "


def rows() -> list[tuple[str, str, int]]:
    return [(question, text, int(label)) for question, labels in FOUND for text, label in labels.items()]


def lines(file: Path, *found: Any, line_end: str = "\n") -> Path:
    return write_lines(file, found, line_end)


def prepared(file: Path) -> Path:
    records = [
        {"query": question, "passages": [{"text": text, "label": int(label)} for text, label in labels.items()]}
        for question, labels in FOUND
    ]
    return lines(file, *records, line_end="\r\n")


def trec(file: Path, *more: str) -> Path:
    return write_trecqa(file, FOUND, more)


def wikiqa(file: Path) -> Path:
    return write_wikiqa(file, FOUND)


def headless(file: Path) -> Path:
    return lines(file, *(f"{question}\t{text}\t{label}" for question, text, label in rows()))


def csv(file: Path) -> Path:
    return lines(file, "label,question,passage", *(f'{label},{question},"{text}"' for question, text, label in rows()))


@pytest.mark.parametrize("write", [prepared, trec, wikiqa, headless, csv])
def test_every_layout_says_the_same(tmp_path: Path, small: Tokenizer, write: Any) -> None:
    suffix = {prepared: "jsonl", trec: "xml", csv: "csv"}.get(write, "tsv")
    file = write(tmp_path / f"train.{suffix}")
    opened = build("answer_selection", [file], tmp_path / "out", small)
    assert choices(opened, "train") == FOUND
    assert opened.manifest["remarks"] == [f"{NONE_RIGHT}{opened.queries.ids[1]})"]
    zipped = tmp_path / f"dev.{suffix}.gz"
    zipped.write_bytes(gzip.compress(b"\xef\xbb\xbf" + file.read_bytes()))
    both = AnswerSelection([file, zipped])
    assert both.splits() == ["train", "dev"]
    assert [row[:3] for row in both.groups("dev")] == [row[:3] for row in both.groups("train")]


def test_trec_questions_without_a_passage_are_left_out(tmp_path: Path) -> None:
    more = ["<QApairs id='9'>", "<question>", "who\t?", "</question>", "</QApairs>"]
    reader = AnswerSelection([trec(tmp_path / "train.xml", *more)])
    assert len(list(reader.groups("train"))) == 2
    first = len((tmp_path / "train.xml").read_text().splitlines()) - 4
    why = "questions without any passage"
    assert reader.remarks() == [
        f"split train: left out 1 {why} (the first: {tmp_path / 'train.xml'}:{first})",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<QApairs id='1'>\n<question>\nx\n</question>\n", "a:1: <QApairs> without its end; is the file cut short"),
        ("<QApairs id='1'>\n<QApairs id='2'>\n", "a:2: <QApairs id='2'> in the wrong place"),
        ("<question>\n", "a:1: <question> in the wrong place"),
        ("<!-- -->\n</QApairs>\n", "a:2: </QApairs> in the wrong place"),
        ("<QApairs id='1'>\n<positive>\nx\n</positive>\n</QApairs>\n", "a:1: 'question' is empty"),
        ("what\tthat\n", "a: not a file of answer selection"),
        ("x\ty\t1\nx\tz\t2\n", "a:2: label '2' is neither 1 nor 0"),
        ("x\ty\t1\nx\tz\n", "a:2: 2 columns, expected 3"),
        ("x\ty\t1\nx\tz\t0\t0\n", "a:2: 4 columns, expected 3"),
        ("x\ty\t1\n\tz\t0\n", "a:2: 'question' is empty"),
        ("x\ty\t1\nx\t\t0\n", "a:2: 'passage' is empty"),
        ("x\ty\t1\nz\ty\t1\nx\tz\t0\n", "a:3: question 'x' came before; sort"),
        ("qid\tquestion\ttext\tlabel\n1\tx\ty\t0\n1\tz\ty\t0\n", "a:3: question '1' is another one on line 2"),
        ('{"query": "x", "passages": []}', "a:1: has no passages"),
        ('{"query": "x", "passages": ["y"]}', "a:1: 'passages' is missing or not a list of objects"),
        ('{"query": "x", "passages": [{"text": "y"}]}', "a:1: label None is neither"),
        ('{"query": "x", "passages": [{"text": "y", "label": 0.5}]}', "a:1: label 0.5 is neither"),
        ('{"query": "x", "passages": [{"text": "y", "label": "yes"}]}', "a:1: label 'yes' is neither"),
        ('{"query": "x", "passages": [{"text": "y", "label": [1]}]}', r"a:1: label \[1\] is neither"),
        ('{"query": "x", "passages": [{"text": "y", "label": NaN}]}', "a:1: label nan is neither"),
        ('{"query": "x", "passages": [{"text": "", "label": 1}]}', "a:1: 'text' is empty"),
        ('{"query": 1, "passages": [{"text": "y", "label": 1}]}', "a:1: 'query' is missing or not a string"),
        ('{"answers": []}', "a: not a file of answer selection"),
        ("", "a: is empty"),
    ],
)
def test_bad_content_is_named(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(InputError, match=reason):
        exhaust(AnswerSelection([tmp_path / "a"]))


@pytest.mark.parametrize(("right", "wrong"), [(1.0, 0.0), (True, False), ("1", "0"), ("1.0", "0.0")])
def test_labels_of_any_type_are_numbers(tmp_path: Path, right: object, wrong: object) -> None:
    passages = [{"text": "y", "label": right}, {"text": "z", "label": wrong}]
    (row,) = AnswerSelection([lines(tmp_path / "a.jsonl", {"query": "x", "passages": passages})]).groups("train")
    assert row.labels == [1.0, 0.0]


def test_labels_of_parquet_are_numbers(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the packages of the extra `dumps`")
    from pyarrow import parquet

    table = {"question": ["x", "x"], "passage": ["y", "z"], "label": [1.0, 0.0]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    (row,) = AnswerSelection([tmp_path / "a.parquet"]).groups("train")
    assert row.labels == [1.0, 0.0]


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


def test_a_paragraph_with_a_supporting_fact_is_right(tmp_path: Path, small: Tokenizer) -> None:
    train, dev = tmp_path / "hotpot_train_v1.1.json", tmp_path / "hotpot_dev_distractor_v1.json"
    train.write_text(json.dumps([hotpot(), hotpot(question="and?", supporting_facts=[["Cat", 0]])]))
    dev.write_text(json.dumps([hotpot()], indent=1))
    opened = build("answer_selection", [train, dev], tmp_path / "out", small)
    texts = ["Dog It sleeps.", "Fox It runs. It jumps.", "Red fox It is red."]
    assert choices(opened, "dev") == [("which fox?", dict(zip(texts, [0.0, 1.0, 1.0], strict=True)))]
    assert choices(opened, "train")[1] == ("and?", dict.fromkeys(texts, 0.0))
    assert opened.manifest["remarks"] == [f"{NONE_RIGHT}{opened.queries.ids[1]})"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"supporting_facts": None}, "'supporting_facts' is missing or not a list of pairs; test sets have none"),
        ({"supporting_facts": [["Fox"]]}, "'supporting_facts' is missing or not a list of pairs"),
        ({"context": {"title": ["Fox"], "sentences": [["It runs."]]}}, "'context' is missing or not a list of pairs"),
        ({"context": [["Fox", "It runs."]]}, "'context' is not a list of"),
        ({"context": [["Fox", [1]]]}, "'context' is not a list of"),
        ({"context": [["", [" "]]]}, "'context' is empty"),
        ({"context": []}, "has no passages"),
        ({"question": ""}, "'question' is empty"),
    ],
)
def test_a_bad_question_of_hotpotqa_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    (tmp_path / "train.json").write_text(json.dumps([hotpot(), hotpot(**change)]))
    with pytest.raises(InputError, match=f"train.json:1: element 2: {reason}"):
        exhaust(AnswerSelection([tmp_path / "train.json"]))


def quasar(folder: Path, *contexts: Any, questions: Any = ()) -> list[Path]:
    asked = questions or [
        {"answer": "Red Fox", "question": "what runs", "uid": "s3q1"},
        {"answer": "dog", "question": "what sleeps", "uid": "s3q2", "tags": ["1tok"]},
    ]
    return [lines(folder / "train_questions.json", *asked), lines(folder / "train_contexts.json", *contexts)]


CONTEXTS = [
    {"uid": "s3q2", "contexts": [[0.9, "the dogs sleep"], [0.1, "A Dog, he said"]]},
    {"uid": "s3q1", "contexts": [[0.9, "the red-fox runs"], [0.1, "a red fox"]]},
]


def test_a_passage_with_the_words_of_the_answer_is_right(tmp_path: Path, small: Tokenizer) -> None:
    files = quasar(tmp_path, *CONTEXTS)
    opened = build("answer_selection", files, tmp_path / "out", small)
    assert choices(opened, "train") == [
        ("what sleeps", {"the dogs sleep": 0.0, "A Dog, he said": 1.0}),
        ("what runs", {"the red-fox runs": 0.0, "a red fox": 1.0}),
    ]
    assert {record["file"] for record in opened.manifest["inputs"]} == set(map(str, files))


@pytest.mark.parametrize(
    ("contexts", "reason"),
    [
        (CONTEXTS[:1], "train_questions.json:1: uid 's3q1' has no contexts in .*train_contexts.json"),
        ([*CONTEXTS, CONTEXTS[0]], "train_contexts.json:3: uid 's3q2' is not in .*, or came before"),
        ([{"uid": "s3q9", "contexts": []}], "train_contexts.json:1: uid 's3q9' is not in .*train_questions.json"),
        ([CONTEXTS[0], {"uid": "s3q1", "contexts": []}], "train_contexts.json:2: has no passages"),
        ([{"contexts": []}], "train_contexts.json:1: 'uid' is missing"),
        ([{"uid": "s3q1", "contexts": ["a"]}], "train_contexts.json:1: 'contexts' is missing or not a list of pairs"),
        ([{"uid": "s3q1", "contexts": [[1, ""]]}], "train_contexts.json:1: 'contexts' is empty"),
    ],
)
def test_questions_and_contexts_must_agree(tmp_path: Path, contexts: list[Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        exhaust(AnswerSelection(quasar(tmp_path, *contexts)))


def test_questions_and_contexts_come_together(tmp_path: Path) -> None:
    questions, contexts = quasar(tmp_path, *CONTEXTS)
    for files in ([questions], [contexts], [questions, Path(f"dev={contexts}")], [questions, contexts, contexts]):
        with pytest.raises(InputError, match="name one file of questions and one of contexts"):
            AnswerSelection(files)
    bad = [{"answer": "", "question": "what runs", "uid": "s3q1"}]
    with pytest.raises(InputError, match="train_questions.json:1: 'answer' is empty"):
        exhaust(AnswerSelection(quasar(tmp_path, *CONTEXTS, questions=bad)))


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
