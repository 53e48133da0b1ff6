"""The columns of a table: those of sentence-transformers' data sets, and those given by name."""

from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.files.text_columns import TextColumns, parse_columns, text_columns
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.formats.contract import choices, lines
from tests.data_prep.collections.raw_formats import Lists, write_parquet
from tests.hub import Hub

MANY = " ".join(f"negative_{i}" for i in range(1, 12))
ROW = {"id": "7", "u": "fox", "v": "a red fox", "w": "a dog", "x": "a stone", "score": 3, "kind": "neutral"}


@pytest.mark.parametrize(
    ("columns", "texts", "label"),
    [
        ("anchor positive", "anchor positive", None),
        ("score sentence1 sentence2", "sentence1 sentence2", "score"),
        ("sentence_A sentence_B label", "sentence_A sentence_B", "label"),
        ("answer query", "query answer", None),
        ("anchor negative positive", "anchor positive negative", None),
        (f"{MANY} positive query", f"query positive {MANY}", None),
    ],
)
def test_those_of_sentence_transformers_are_found(tmp_path: Path, columns: str, texts: str, label: str | None) -> None:
    (tmp_path / "a.jsonl").write_text(lines(dict.fromkeys(columns.split(), "x")))
    found = text_columns(tmp_path / "a.jsonl", (), negatives="neg" in columns)
    assert found == TextColumns(texts.split(), label, by_name=True)


@pytest.mark.parametrize(
    ("kind", "form", "given", "found"),
    [
        ("parquet", "pairs", "query=u,document=v", {"a red fox": 1}),
        ("csv", "pairs", "document=u,query=v,label=score", {"fox": 3}),
        ("jsonl", "triples", "query=u,document=w,negative=x,negative=v", {"a dog": 1, "a stone": 0, "a red fox": 0}),
        ("csv", "nli", "query=u,document=v,label=kind", {"a red fox": 1}),
    ],
)
def test_given_names_come_first(
    tmp_path: Path, small: Tokenizer, kind: str, form: str, given: str, found: dict[str, float]
) -> None:
    file = tmp_path / f"a.{kind}"
    table = [",".join(map(str, cells)) for cells in (ROW, ROW.values())] if kind == "csv" else [ROW]
    write_parquet(file, [ROW]) if kind == "parquet" else file.write_text(lines(*table))
    opened = build(form, [file], tmp_path / "out", small, columns=parse_columns(given))
    expected: Lists = [("a red fox" if form == "pairs" and "query=v" in given else "fox", found)]
    assert choices(opened, "train") == expected
    assert opened.manifest["command"]["columns"] == [list(pair) for pair in parse_columns(given)]


@pytest.mark.parametrize(
    ("form", "given", "problem"),
    [
        ("pairs", "query=u,document=z", "a.jsonl: has no column 'z'; its columns are id, u, v, w, x, score, kind"),
        ("pairs", "query=u", "--columns: name query and document, each once, and nothing else but a label"),
        ("pairs", "query=u,document=v,negative=w", "--columns: name query and document, each once, and nothing else"),
        ("triples", "query=u,document=v", "each once; negative, once or more, and nothing else but a label"),
        ("triples", "query=u,query=v,document=v,negative=w", "each once; negative"),
        ("nli", "query=u,document=v", "each once; label, and"),
        ("pairs", "query=u,text=v", "--columns query=u,text=v: write ROLE=NAME,ROLE=NAME with roles of query,"),
        ("pairs", "query", "--columns query: write ROLE=NAME"),
        ("beir", "query=u,document=v", "--columns: is for tables (nli, pairs, triples): leave it out for beir"),
    ],
)
def test_other_ones_are_refused(tmp_path: Path, small: Tokenizer, form: str, given: str, problem: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(lines(ROW))
    with pytest.raises(InputError) as refusal:
        build(form, [file], tmp_path / "out", small, columns=parse_columns(given))
    assert problem in str(refusal.value)


def test_a_collection_is_made_of_a_data_set_of_the_hub(
    hub: Hub, tmp_path: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"data/{split}-00000-of-00001.jsonl": lines(ROW | {"id": split}).encode() for split in ("train", "test")}
    hub.publish("owner/data", files, "datasets")
    command = ["collection", "pairs", "hf://datasets/owner/data/**/*.jsonl", "--columns", "query=u,document=v"]
    assert main([*command, "--tokenizer", str(shards), "--out", str(tmp_path / "out")]) == 0
    assert "1 documents, 1 queries (1 of test, 1 of train)" in capsys.readouterr().out
    again = [*command[:2], "dev=hf://datasets/owner/data/data/train*", *command[3:]]
    assert main([*again, "--tokenizer", str(shards), "--out", str(tmp_path / "dev")]) == 0
    assert [*Collection.open(tmp_path / "dev").splits()] == ["dev"]
    hub.answer = 404, "application/json", b"{}"
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main([*command[:2], "hf://datasets/owner/other/x.jsonl", "--tokenizer", str(shards), "--out", str(tmp_path)])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("data_prep: hf://datasets/owner/other/x.jsonl: the hub has no such repository")
