"""Judgements of unknown queries and documents: left out and counted, or refused; relevant ones count in metrics."""

import json
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.derive import NewCandidates, derive
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.beir_folder import HEADER, write_beir
from tests.data_prep.collections.raw_formats import write_files

# documents a, b, c; queries 1, 2
QRELS = HEADER + "1\ta\t1\n1\tgone\t2\n9\ta\t1\n2\tc\t2\n2\tlost\t-1\n1\tgone\t2\n8\tb\t1\n9\tgone\t1\n"


@pytest.fixture
def beir(beir: Path) -> Path:
    (beir / "qrels" / "test.tsv").write_text(QRELS)
    return beir


def judged(folder: Path, tokenizer: Tokenizer, rows: str) -> Collection:
    """Build the small folder with these judgements."""
    beir = write_beir(folder / "c")
    (beir / "qrels" / "test.tsv").write_text(HEADER + rows)
    return build("beir", [beir], beir, tokenizer)


def elsewhere(opened: Collection, split: str) -> list[list[tuple[int, float]]]:
    groups = opened.groups(split)
    return [groups.elsewhere(i) for i in range(len(groups))]


def test_what_is_left_out_is_named(beir: Path, small: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["collection", str(beir), "--tokenizer", str(small.path)]
    assert main(arguments) == 0
    qrels = beir / "qrels" / "test.tsv"
    assert capsys.readouterr().out.splitlines()[2:4] == [
        f"split test: left out 3 of 8 judgements: there is no query '9', '8' (the first: {qrels}:4)",
        f"split test: left out 3 of 8 judgements: the corpus lacks 'gone', 'lost' (the first: {qrels}:3)",
    ]
    opened = Collection.open(beir)
    assert opened.groups("test")[0].candidates.tolist() == [0]
    assert elsewhere(opened, "test") == [[(-1, 2.0)], []]
    assert opened.qrels("test") == {"1": {"a": 1, "\t1": 2}, "2": {"c": 2}}
    with pytest.raises(SystemExit):
        main([*arguments, "--strict"])
    assert f"data_prep: {qrels}:4: '9' is not among the queries" in capsys.readouterr().err
    assert Collection.open(beir).manifest == opened.manifest


def test_many_are_counted_and_zeros_are_pointed_out(tmp_path: Path, small: Tokenizer) -> None:
    opened = judged(tmp_path, small, "1\ta\t1\n" + "".join(f"0{i}\ta\t1\n" for i in range(1, 6)))
    (remark, *_) = opened.manifest["remarks"]
    assert "left out 5 of 6 judgements: there is no query '01', '02', '03', 2 more (the first: " in remark
    assert remark.endswith("test.tsv:3; '1' is: write the zeros alike in all files)")


def test_a_query_whose_documents_are_all_unknown_still_counts(tmp_path: Path, small: Tokenizer) -> None:
    opened = judged(tmp_path, small, "2\tgone\t1\n1\ta\t1\n2\tlost\t3\n")
    groups = opened.groups("test")
    assert [(query, candidates.tolist()) for query, candidates, _ in map(groups.__getitem__, range(2))] == [
        (1, []),
        (0, [0]),
    ]
    assert elsewhere(opened, "test") == [[(-1, 1.0), (-1, 3.0)], []]
    assert opened.qrels("test") == {"2": {"\t0": 1, "\t1": 3}, "1": {"a": 1}}


def test_a_split_of_which_nothing_is_left_is_refused(tmp_path: Path, small: Tokenizer) -> None:
    for rows, reason in (("1\tgone\t1\n", "test.tsv:2: 'gone' is not"), ("7\ta\t1\n", "test.tsv:2: '7' is not among")):
        with pytest.raises(InputError, match=reason):
            judged(tmp_path, small, rows)


def test_a_pool_keeps_its_known_documents(beir: Path, small: Tokenizer) -> None:
    (beir / "pools").mkdir()
    (beir / "pools" / "test.txt").write_text("c\ngone\na\n")
    opened = build("beir", [beir], beir, small)
    assert opened.pool("test").tolist() == [2, 0]
    assert any(
        "left out 1 of 3 documents of its pool: the corpus lacks 'gone'" in r for r in opened.manifest["remarks"]
    )
    (beir / "pools" / "test.txt").write_text("gone\n")
    with pytest.raises(InputError, match="test.txt:1: 'gone' is not among the documents"):
        build("beir", [beir], beir, small)


def test_negatives_that_are_unknown_are_left_out(tmp_path: Path, small: Tokenizer) -> None:
    lines = [{"query_id": "1", "query": "fox", "positive_document_ids": ["7"], "negative_document_ids": ["8", "9"]}]
    corpus = [{"docid": "7", "text": "a fox"}, {"docid": "9", "text": "a hen"}]
    for name, records in {"train": lines, "corpus": corpus}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    opened = build("tevatron", [tmp_path / "train.jsonl", tmp_path / "corpus.jsonl"], tmp_path / "out", small)
    assert opened.groups("train")[0].candidates.tolist() == [0, 1]
    assert elsewhere(opened, "train") == [[]]


def test_what_qrels_judge_besides_a_list_is_kept(tmp_path: Path, small: Tokenizer) -> None:
    """With a collection the documents are known, without one they are not."""
    listed = "5\t1\tfox\ta fox\n5\t2\tfox\ta hen\n6\t2\tdog\ta hen\n"
    files = {"top1000.dev": listed, "qrels.dev.tsv": "5\t0\t2\t1\n5\t0\t3\t3\n5\t0\t4\t0\n6\t0\t3\t1\n"}
    alone = build("msmarco", [write_files(tmp_path / "alone", files)], tmp_path / "1", small)
    assert elsewhere(alone, "top1000.dev") == [[(-1, 3.0)], [(-1, 1.0)]]
    texts = {"collection.tsv": "1\ta fox\n2\ta hen\n3\ta dog\n4\ta cat\n", "queries.dev.tsv": "5\tfox\n6\tdog\n"}
    opened = build("msmarco", [write_files(tmp_path / "whole", {**files, **texts})], tmp_path / "2", small, strict=True)
    assert elsewhere(opened, "top1000.dev") == [[(2, 3.0)], [(2, 1.0)]]
    assert opened.qrels("top1000.dev") == {"5": {"1": 0, "2": 1, "3": 3}, "6": {"2": 0, "3": 1}}
    groups = opened.groups("top1000.dev")
    columns = np.asarray(groups.candidates.ends), np.asarray(groups.candidates.flat), np.asarray(groups.labels)
    found = np.zeros(3, np.uint8), np.zeros(3, np.float32)
    mined = derive(
        opened, tmp_path / "mined", "top1000.dev", NewCandidates(np.asarray(groups.queries), *columns, *found), {}, []
    )
    assert elsewhere(mined, "top1000.dev") == elsewhere(opened, "top1000.dev")


def test_grades_are_any_whole_numbers_that_are_not_too_large(tmp_path: Path, small: Tokenizer) -> None:
    for grade, known in (("2.0", 2), ("-2", -2), ("+1", 1), ("1e0", 1)):
        assert judged(tmp_path, small, f"1\ta\t{grade}\n").qrels("test") == {"1": {"a": known}}
    opened = judged(tmp_path, small, "1\ta\t2000000\n")
    with pytest.raises(InputError, match=r"splits/test: its largest label 2e\+06 is above any grade, so not"):
        opened.qrels("test")
