"""Tevatron's two schemas, and the document_text that its own code reads as an empty text."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.collections.build import build
from data_prep.collections.collection import Collection
from data_prep.collections.formats.tevatron import Tevatron
from data_prep.collections.ids import content_id
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer

FOX = {"docid": "7", "title": "Foxes", "text": "The fox is quick."}
DOG = {"docid": "8", "title": "", "text": "Dogs sleep."}
HEN = {"docid": "9", "text": "A brown hen"}
CORPUS = [FOX, DOG, HEN]
PASSAGES = [
    {"query_id": "1", "query": "who is quick", "positive_passages": [FOX], "negative_passages": [DOG, HEN, FOX]},
    {"query_id": "2", "query": "who sleeps", "positive_passages": [DOG], "negative_passages": [], "answers": ["dogs"]},
]
IDS = [
    {
        "query_id": "1",
        "query_text": "who is quick",
        "positive_document_ids": ["7"],
        "negative_document_ids": ["8", "7"],
    },
    {"query_id": "2", "query": "who sleeps", "positive_document_ids": ["8"]},
]


def write(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def made(tmp_path: Path, tokenizer: Tokenizer, *inputs: Path, strict: bool = False) -> Collection:
    return build("tevatron", inputs, tmp_path / "out", tokenizer, strict=strict)


def read_all(*inputs: Path) -> list[object]:
    reader = Tevatron(inputs)
    return [*reader.corpus(), *reader.queries(), *(item for split in reader.splits() for item in reader.groups(split))]


def test_passages_beside_queries(tmp_path: Path, small: Tokenizer) -> None:
    folder = tmp_path / "in"
    write(folder / "train.jsonl.gz", PASSAGES)
    write(folder / "dev.JSONL", [PASSAGES[1] | {"query_id": "3", "query": "who is asleep"}])
    opened = made(tmp_path, small, folder)
    assert list(opened.corpus.ids) == ["8", "7", "9"]
    assert list(opened.corpus.texts()) == ["Dogs sleep.", "Foxes The fox is quick.", "A brown hen"]
    assert dict(zip(opened.queries.ids, opened.queries.texts(), strict=True)) == {
        "1": "who is quick",
        "2": "who sleeps",
        "3": "who is asleep",
    }
    assert opened.qrels("train") == {"1": {"7": 1, "8": 0, "9": 0}, "2": {"8": 1}}
    assert opened.qrels("dev") == {"3": {"8": 1}}


def test_ids_of_a_corpus(tmp_path: Path, small: Tokenizer) -> None:
    inputs = write(tmp_path / "mine.jsonl", IDS), write(tmp_path / "corpus.jsonl", CORPUS)
    opened = made(tmp_path, small, Path(f"test={inputs[0]}"), inputs[1])
    assert list(opened.corpus.ids) == ["7", "8", "9"]
    assert list(opened.queries.texts()) == ["who is quick", "who sleeps"]
    assert {split: opened.qrels(split) for split in opened.splits()} == {"test": {"1": {"7": 1, "8": 0}, "2": {"8": 1}}}


def test_document_text_is_read_as_the_code_does_not(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", IDS)
    corpus = write(tmp_path / "corpus.jsonl", [{"docid": "7", "document_text": "The fox"}, DOG])
    assert [text.parts for text in Tevatron([train, corpus]).corpus()] == [["The fox"], ["Dogs sleep."]]
    write(corpus, [DOG, {"docid": "7", "title": "Foxes", "body": "The fox"}])
    with pytest.raises(InputError, match="corpus.jsonl:2: 'text' is missing"):
        read_all(train, corpus)


def test_a_corpus_may_hold_the_passages_too(tmp_path: Path, small: Tokenizer) -> None:
    train, corpus = write(tmp_path / "train.jsonl", PASSAGES), write(tmp_path / "corpus.jsonl", CORPUS)
    assert list(made(tmp_path, small, train, corpus).corpus.ids) == ["7", "8", "9"]
    write(corpus, [DOG | {"text": "Dogs bark."}])
    with pytest.raises(InputError, match="train.jsonl:1: id '8' has another text on an earlier line"):
        made(tmp_path / "other", small, train, corpus)


def test_a_passage_without_docid_is_known_by_its_content(tmp_path: Path) -> None:
    bare = {"text": "The fox", "title": "Foxes"}
    record = PASSAGES[0] | {"positive_passages": [bare], "negative_passages": []}
    (group,) = Tevatron([write(tmp_path / "train.jsonl", [record])]).groups("train")
    assert group.candidates == [content_id("Foxes The fox")]


def test_iterators_may_be_taken_twice(tmp_path: Path) -> None:
    reader = Tevatron([write(tmp_path / "train.jsonl", PASSAGES)])
    assert list(reader.corpus()) == list(reader.corpus())
    assert list(reader.queries()) == list(reader.queries())
    assert list(reader.groups("train")) == list(reader.groups("train"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"query_id": None}, "'query_id' is missing or not a string"),
        ({"query_id": 2}, "'query_id' is missing or not a string"),
        ({"query": " "}, "'query' is empty"),
        ({"query": ["who"]}, "'query' is missing or not a string"),
        ({"positive_passages": []}, "has no positive"),
        ({"positive_passages": None}, "'positive_passages' is missing or not a list"),
        ({"negative_passages": {"docid": "7"}}, "'negative_passages' is missing or not a list"),
        ({"negative_passages": ["7"]}, "a passage is not a JSON object"),
        ({"negative_passages": [{"docid": "5"}]}, "'text' is missing or not a string"),
        ({"negative_passages": [{"docid": "5", "text": ""}]}, "'text' is empty"),
        ({"negative_passages": [{"docid": 5, "text": "a"}]}, "'docid' is missing or not a string"),
        ({"negative_passages": [{"docid": "5", "title": 1, "text": "a"}]}, "'title' is not a string"),
    ],
)
def test_a_bad_record_with_passages_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    train = write(tmp_path / "train.jsonl", [PASSAGES[0], PASSAGES[1] | change])
    with pytest.raises(InputError, match=f"train.jsonl:2: {reason}"):
        read_all(train)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"positive_document_ids": []}, "has no positive"),
        ({"positive_document_ids": "8"}, "'positive_document_ids' is missing or not a list"),
        ({"negative_document_ids": [8]}, "'negative_document_ids' is missing or not a string"),
        ({"query_text": ""}, "'query_text' is empty"),
    ],
)
def test_a_bad_record_with_ids_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    train = write(tmp_path / "train.jsonl", [IDS[0], IDS[1] | change])
    with pytest.raises(InputError, match=f"train.jsonl:2: {reason}"):
        read_all(train, write(tmp_path / "corpus.jsonl", CORPUS))


def test_documents_that_repeat_or_are_unknown_are_named(tmp_path: Path, small: Tokenizer) -> None:
    train, corpus = write(tmp_path / "train.jsonl", IDS), write(tmp_path / "corpus.jsonl", [*CORPUS, FOX])
    with pytest.raises(InputError, match="corpus.jsonl:4: id '7' is already on line 1"):
        made(tmp_path, small, train, corpus)
    write(corpus, [FOX, HEN])
    with pytest.raises(InputError, match="train.jsonl:1: '8' is not among the documents"):
        made(tmp_path, small, train, corpus, strict=True)


def test_files_that_are_missing_or_not_tevatrons_are_refused(tmp_path: Path) -> None:
    train, corpus = write(tmp_path / "train.jsonl", IDS), write(tmp_path / "corpus.jsonl", CORPUS)
    with pytest.raises(InputError, match="train.jsonl: name the corpus of its positive_document_ids too"):
        Tevatron([train])
    with pytest.raises(InputError, match="corpus.jsonl: no file of queries"):
        Tevatron([corpus])
    with pytest.raises(InputError, match="beir.jsonl:1: has none of positive_passages, positive_document_ids, docid"):
        Tevatron([write(tmp_path / "beir.jsonl", [{"_id": "1", "text": "a"}])])
    with pytest.raises(InputError, match="empty.jsonl: is empty"):
        Tevatron([write(tmp_path / "empty.jsonl", [])])
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder: no .jsonl file in this folder"):
        Tevatron([tmp_path / "folder"])
