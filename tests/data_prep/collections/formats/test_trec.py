"""TREC's test collections: documents as JSON or rows, topics and qrels; every bad line is reported."""

import gzip
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.collections.collection import Collection
from data_prep.collections.formats.trec import Trec
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer

FILES = {
    "corpus.jsonl": '{"id": "FT-1", "title": "Foxes", "contents": "The fox is quick."}\n'
    '{"docno": "FT-02", "text": "Hens"}\n',
    "collection.more.tsv.gz": "FT-3\tDogs sleep.\n",
    "topics.robust.tsv": "301\twho is quick\n302\twho sleeps\n",
    "qrels.robust.txt": "301 0 FT-1 2\n301 0 FT-3 0\n302 0 FT-3 1\n",
    "qrels.tsv": "query-id\tcorpus-id\tscore\n301\tFT-1\t1\n",
    "README": "not of the collection",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        data = content.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def made(tmp_path: Path, tokenizer: Tokenizer, *inputs: Path, strict: bool = False) -> Collection:
    return build("trec", inputs, tmp_path / "out", tokenizer, strict=strict)


def read_all(reader: Trec) -> list[object]:
    return [*reader.corpus(), *reader.queries(), *(item for split in reader.splits() for item in reader.groups(split))]


def test_documents_topics_and_judgements_of_a_folder(tmp_path: Path, small: Tokenizer) -> None:
    opened = made(tmp_path, small, write(tmp_path / "in", FILES))
    assert dict(zip(opened.corpus.ids, opened.corpus.texts(), strict=True)) == {
        "FT-1": "Foxes The fox is quick.",
        "FT-02": "Hens",
        "FT-3": "Dogs sleep.",
    }
    assert list(opened.queries.texts()) == ["who is quick", "who sleeps"]
    assert {split: opened.qrels(split) for split in opened.splits()} == {
        "robust": {"301": {"FT-1": 2, "FT-3": 0}, "302": {"FT-3": 1}},
        "train": {"301": {"FT-1": 1}},
    }


def test_a_split_may_be_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", FILES)
    texts = [folder / name for name in ("corpus.jsonl", "topics.robust.tsv")]
    reader = Trec([*texts, Path(f"test={folder / 'qrels.robust.txt'}")])
    assert reader.splits() == ["test"]
    assert list(reader.groups("test")) == list(reader.groups("test"))
    assert list(reader.corpus()) == list(reader.corpus())


def test_byte_order_marks_and_windows_line_ends(tmp_path: Path) -> None:
    marked = {name: "\ufeff" + content.replace("\n", "\r\n") for name, content in FILES.items()}
    plain, other = Trec([write(tmp_path / "plain", FILES)]), Trec([write(tmp_path / "marked", marked)])
    for of_plain, of_other in [
        (plain.corpus(), other.corpus()),
        (plain.queries(), other.queries()),
        (plain.groups("robust"), other.groups("robust")),
    ]:
        assert [item[:-1] for item in of_plain] == [item[:-1] for item in of_other]  # equal except for the file


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("corpus.jsonl", "{", ":3: not JSON"),
        ("corpus.jsonl", '{"text": "a"}', ":3: 'id' is missing or not a string"),
        ("corpus.jsonl", '{"docid": 7, "text": "a"}', ":3: 'docid' is missing or not a string"),
        ("corpus.jsonl", '{"id": "7", "body": "a"}', ":3: 'contents' is missing or not a string"),
        ("corpus.jsonl", '{"id": "7", "title": " ", "text": ""}', ":3: 'text' is empty"),
        ("topics.robust.tsv", "<top>", ":3: 1 column, expected 2 between tabs: id, text"),
        ("topics.robust.tsv", "303\t", ":3: 'text' is empty"),
        ("qrels.robust.txt", "302 Q0 FT-3 1 12.5 bm25", ":4: 6 columns, expected query, 0, document, grade"),
        ("qrels.robust.txt", "302 0 FT-3 high", ":4: grade 'high' is not a whole number"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, name: str, line: str, reason: str) -> None:
    reader = Trec([write(tmp_path / "in", {**FILES, name: FILES[name] + line + "\n"})])
    with pytest.raises(InputError, match=name + reason):
        read_all(reader)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("collection.more.tsv.gz", "FT-3\tmore", ":2: id 'FT-3' is already on line 1"),
        ("topics.robust.tsv", "301\tother", ":3: id '301' has another text on an earlier line"),
        (
            "qrels.robust.txt",
            "302 0 FT-2 1",
            ":4: 'FT-2' is not among the documents; 'FT-02' is: write",
        ),
        ("qrels.robust.txt", "302 0 FT-x 1", ":4: 'FT-x' is not among the documents$"),
        ("qrels.robust.txt", "303 0 FT-3 1", ":4: '303' is not among the queries"),
        ("qrels.robust.txt", "302 0 FT-3 0", ":4: its query and document have another score on an earlier line"),
    ],
)
def test_ids_that_repeat_or_are_unknown_are_named(
    tmp_path: Path, small: Tokenizer, name: str, line: str, reason: str
) -> None:
    folder = write(tmp_path / "in", {**FILES, name: FILES[name] + line + "\n"})
    with pytest.raises(InputError, match=name + reason):
        made(tmp_path, small, folder, strict=True)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", FILES)
    for names, missing in [
        (["topics.robust.tsv", "qrels.tsv"], "corpus.jsonl or .tsv"),
        (["corpus.jsonl", "qrels.tsv"], r"topics\.\*\.tsv"),
        (["corpus.jsonl", "topics.robust.tsv"], r"qrels\.\*"),
    ]:
        with pytest.raises(InputError, match=f"no file is named {missing}$"):
            Trec([folder / name for name in names])
