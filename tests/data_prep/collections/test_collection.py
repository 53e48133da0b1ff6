import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from data_prep.collections import collection
from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from data_prep.tokenizers import tokenizer
from data_prep.tokenizers.tokenizer import Tokenizer

CORPUS = [
    {"_id": "a", "title": "Foxes", "text": "The quick brown fox."},
    {"_id": "b", "title": "", "text": ""},
    {"_id": "c", "text": "Dogs sleep."},
]
QUERIES = [{"_id": "1", "text": "fox"}, {"_id": "2", "text": "dog sleeps"}]
HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    directory = tmp_path / "beir"
    (directory / "qrels").mkdir(parents=True)
    (directory / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in CORPUS))
    (directory / "queries.jsonl").write_text("".join(json.dumps(record) + "\n" for record in QUERIES))
    (directory / "qrels" / "test.tsv").write_text(HEADER + "1\ta\t1\n2\tc\t2\n2\tb\t0\n")
    return directory


def test_a_collection_has_the_tokens_of_its_texts(beir: Path, small: Tokenizer) -> None:
    collection.tokenize(beir, small)
    opened = Collection.open(beir)
    assert opened.corpus.ids == ["a", "b", "c"]
    assert opened.corpus_texts() == ["Foxes The quick brown fox.", "", "Dogs sleep."]
    assert opened.query_texts() == ["fox", "dog sleeps"]
    assert opened.tokenizer.fingerprint == small.fingerprint
    for texts, tokens in [(opened.corpus_texts(), opened.corpus), (opened.query_texts(), opened.queries)]:
        assert len(tokens) == len(texts)
        for i, expected in enumerate(small.encode(texts)):
            np.testing.assert_array_equal(tokens.tokens(i), expected)
            assert tokens.tokens(i).dtype == np.uint16
    assert isinstance(opened.corpus.flat, np.memmap)
    assert opened.corpus.index == {"a": 0, "b": 1, "c": 2}
    assert opened.qrels("test") == {"1": {"a": 1}, "2": {"c": 2, "b": 0}}


def test_many_texts_and_uint32_ids(beir: Path, large: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "BATCH", 7)
    records = [{"_id": str(n), "text": f"fox word{60_000 + n} " * (n % 3)} for n in range(100)]
    (beir / "corpus.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    collection.tokenize(beir, large)
    opened = Collection.open(beir)
    for i, expected in enumerate(large.encode([str(record["text"]) for record in records])):
        np.testing.assert_array_equal(opened.corpus.tokens(i), expected)


def test_a_pool_is_its_file_or_the_whole_corpus(beir: Path, small: Tokenizer) -> None:
    collection.tokenize(beir, small)
    (beir / "pools").mkdir()
    (beir / "pools" / "test.txt").write_text("c\na\n")
    opened = Collection.open(beir)
    assert opened.pool("test") == ["c", "a"]
    assert opened.pool("dev") == ["a", "b", "c"]
    (beir / "pools" / "test.txt").write_text("c\nx\n")
    with pytest.raises(InputError, match="test.txt:2: document 'x' is not in corpus.jsonl"):
        opened.pool("test")
    (beir / "pools" / "test.txt").write_text("c\nc\n")
    with pytest.raises(InputError, match="test.txt:2: document 'c' is repeated"):
        opened.pool("test")


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        ("corpus.jsonl", "{", "corpus.jsonl:4: not JSON"),
        ("corpus.jsonl", "[1]", "corpus.jsonl:4: not a JSON object"),
        ("corpus.jsonl", '{"text": "x"}', "corpus.jsonl:4: '_id' is missing or not a string"),
        ("corpus.jsonl", '{"_id": 7, "text": "x"}', "corpus.jsonl:4: '_id' is missing or not a string"),
        ("corpus.jsonl", '{"_id": "x\\ty", "text": "x"}', "corpus.jsonl:4: _id .* contains a tab"),
        ("corpus.jsonl", '{"_id": "x", "document_text": "y"}', "corpus.jsonl:4: 'text' is missing"),
        ("corpus.jsonl", '{"_id": "x", "title": 3, "text": ""}', "corpus.jsonl:4: 'title' is not a string"),
        ("corpus.jsonl", '{"_id": "b", "text": "x"}', "corpus.jsonl:4: _id 'b' is already on line 2"),
        ("queries.jsonl", '{"_id": "1", "text": "x"}', "queries.jsonl:3: _id '1' is already on line 1"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_left_behind(
    beir: Path, small: Tokenizer, file: str, line: str, reason: str
) -> None:
    with open(beir / file, "a") as stream:
        stream.write(line + "\n")
    before = sorted(os.listdir(beir))
    with pytest.raises(InputError, match=reason):
        collection.tokenize(beir, small)
    assert sorted(os.listdir(beir)) == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("1\ta\t1\n", "test.tsv:1: the first line must be the header"),
        (HEADER + "1\ta\n", "test.tsv:2: 2 columns"),
        (HEADER + "1\ta\t1\n9\ta\t1\n", "test.tsv:3: query '9' is not in queries.jsonl"),
        (HEADER + "1\tz\t1\n", "test.tsv:2: document 'z' is not in corpus.jsonl"),
        (HEADER + "1\ta\t1.5\n", "test.tsv:2: score '1.5' is not a whole number"),
        (HEADER + "1\ta\t1\n1\ta\t0\n", "test.tsv:3: .* have another score on an earlier line"),
        (HEADER, "test.tsv: no judgements"),
        ("", "test.tsv: no judgements"),
        ("\udcff", "test.tsv: not UTF-8"),
    ],
)
def test_bad_judgements_are_named(beir: Path, small: Tokenizer, content: str, reason: str) -> None:
    collection.tokenize(beir, small)
    (beir / "qrels" / "test.tsv").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=reason):
        Collection.open(beir).qrels("test")


def test_windows_line_ends_and_blank_lines_are_read(beir: Path, small: Tokenizer) -> None:
    (beir / "qrels" / "test.tsv").write_bytes((HEADER + "1\ta\t1\n\n").replace("\n", "\r\n").encode())
    content = (beir / "corpus.jsonl").read_bytes().replace(b"\n", b"\r\n") + b"\r\n"
    (beir / "corpus.jsonl").write_bytes(content)
    collection.tokenize(beir, small)
    assert Collection.open(beir).qrels("test") == {"1": {"a": 1}}


def test_a_missing_split_names_the_existing_ones(beir: Path, small: Tokenizer) -> None:
    collection.tokenize(beir, small)
    (beir / "qrels" / "dev.tsv").write_text(HEADER)
    for split in ("train", "../test"):
        with pytest.raises(InputError, match="no split .*; choose one of: dev, test"):
            Collection.open(beir).qrels(split)


def test_stale_tokens_name_the_command_to_run(beir: Path, small: Tokenizer, large: Tokenizer) -> None:
    command = f"run: python -m data_prep collection {beir} --tokenizer"
    with pytest.raises(InputError, match=f"not tokenised; {command}"):
        Collection.open(beir)
    collection.tokenize(beir, small)
    with open(beir / "queries.jsonl", "a") as stream:
        stream.write('{"_id": "3", "text": "x"}\n')
    with pytest.raises(InputError, match=f"changed since tokenising; {command}"):
        Collection.open(beir)
    collection.tokenize(beir, small)
    Collection.open(beir)
    shutil.copy(large.path, beir / "tokenizer.json")
    with pytest.raises(InputError, match=f"changed since tokenising; {command}"):
        Collection.open(beir)


@pytest.mark.parametrize(
    ("file", "array"),
    [
        ("corpus.ends.npy", np.array([9, 5, 9])),
        ("corpus.ends.npy", np.array([5, 9])),
        ("corpus.ids.npy", np.array([60_000] * 9, np.uint16)),
        ("corpus.ids.npy", np.array([3] * 9, np.int64)),
        ("corpus.ids.npy", np.array([{}], object)),
        ("queries.ids.npy", None),
    ],
)
def test_damaged_tokens_are_refused(beir: Path, small: Tokenizer, file: str, array: np.ndarray | None) -> None:
    collection.tokenize(beir, small)
    if array is None:
        (beir / "tokens" / file).write_bytes(b"\x93NUMPY")
    else:
        np.save(beir / "tokens" / file, array, allow_pickle=True)
    with pytest.raises(InputError, match=r"(is damaged|cannot be read .*); run: python -m data_prep collection"):
        Collection.open(beir)


def test_tokenising_again_replaces_the_tokens(beir: Path, small: Tokenizer, large: Tokenizer) -> None:
    collection.tokenize(beir, small)
    collection.tokenize(beir, large)
    assert Collection.open(beir).tokenizer.fingerprint == large.fingerprint
    own = collection.tokenizers.load(beir / "tokenizer.json")
    collection.tokenize(beir, own)  # its own tokenizer.json is read before it is replaced
    assert Collection.open(beir).corpus.ids == ["a", "b", "c"]


def test_missing_parts_are_named(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        collection.tokenize(tmp_path / "nowhere", small)
    (beir / "queries.jsonl").unlink()
    with pytest.raises(InputError, match="queries.jsonl: cannot read"):
        collection.tokenize(beir, small)
    (beir / "queries.jsonl").write_text("\n")
    with pytest.raises(InputError, match="queries.jsonl: contains no texts"):
        collection.tokenize(beir, small)
