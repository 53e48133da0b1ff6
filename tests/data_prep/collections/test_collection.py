"""Open a collection: what it holds; unfinished, stale and damaged ones are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.beir_folder import HEADER, write_beir
from tests.data_prep.collections.raw_formats import dstc7_item, write_files
from tests.data_prep.forge import edit

Change = Callable[[Path], object]


@pytest.fixture
def made(beir: Path, small: Tokenizer) -> Path:
    """The small folder, tokenised in place."""
    return build("beir", [beir], beir, small).directory


def text(file: str, content: str) -> Change:
    return lambda folder: (folder / file).write_text(content)


def array(file: str, *values: Any, dtype: Any = None) -> Change:
    return lambda folder: np.save(folder / file, np.array(values, dtype), allow_pickle=True)


def manifest(change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda folder: edit(folder, change)


def first(file: str, value: int) -> Change:
    """Change the first number of an array, which opening does not read."""

    def change(folder: Path) -> None:
        numbers = np.lib.format.open_memmap(folder / file, "r+")
        numbers[0] = value
        numbers.flush()

    return change


STALE, AGAIN = "changed since tokenising; run: .* collection .* --tokenizer", " make the collection again"
CHANGED = [
    (text("qrels/dev.tsv", HEADER + "1\tb\t1\n"), STALE),
    (lambda folder: tokenizer.train(["another one"] * 2, 60, folder / "tokenizer.json"), STALE),
    (lambda folder: (folder / "corpus.jsonl").unlink(), STALE),
    (manifest(lambda m: m.pop("arrays")), "damaged.*; run: python -m data_prep collection"),
    (manifest(lambda m: m.update(format=2)), "format is version 2, this code reads 1.*; run: python -m data_prep"),
    (manifest(lambda m: m["counts"]["corpus"].update(texts=9)), "its number of texts.*; run: python -m data_prep"),
    (array("corpus/token_ends.npy", 9, 5, 1), "damaged.*" + AGAIN),
    (array("corpus/token_ends.npy", 9), "damaged.*" + AGAIN),
    (array("corpus/tokens.npy", *[3] * 9, dtype=np.int64), "damaged.*" + AGAIN),
    (array("corpus/tokens.npy", {}, dtype=object), "cannot be read.*" + AGAIN),
    (array("corpus/ids.npy", 7, dtype=np.uint8), "damaged.*" + AGAIN),
    (array("corpus/id_order.npy", 0, 1), "damaged.*" + AGAIN),
    (text("queries/text.npy", "\x93NUMPY"), "cannot be read.*" + AGAIN),
    (array("splits/test/labels.npy", 1, dtype=np.float32), "damaged.*" + AGAIN),
    (first("corpus/tokens.npy", 60_000), "tokens.npy: text 0 has a token beyond the vocabulary"),
    (first("corpus/text_ends.npy", 1 << 40), "text_ends.npy: row 0 is damaged"),
]


def read(opened: Collection) -> object:
    return opened.groups("test"), opened.corpus.tokens(0), opened.corpus.text(0)


@pytest.mark.parametrize(("change", "reason"), CHANGED, ids=[f"{i} {reason}" for i, (_, reason) in enumerate(CHANGED)])
def test_what_was_changed_or_damaged_is_refused(made: Path, change: Change, reason: str) -> None:
    change(made)
    with pytest.raises(InputError, match=reason):
        read(Collection.open(made))


@pytest.mark.parametrize("name", ["queries.jsonl", "corpus.jsonl", "qrels/test.tsv"])
def test_a_file_that_is_newer_has_changed_if_its_content_has(made: Path, name: str) -> None:
    content = (made / name).read_bytes()
    for changed in (content + b"\n", content.replace(b"1", b"2").replace(b"fox", b"dog").replace(b"Dogs", b"Cats")):
        (made / name).write_bytes(changed)
        with pytest.raises(InputError, match=STALE):
            Collection.open(made)
    (made / name).write_bytes(content)
    Collection.open(made)


def test_a_collection_has_the_tokens_of_its_texts_and_names_its_splits(made: Path, small: Tokenizer) -> None:
    opened = Collection.open(made)
    assert opened.tokenizer.fingerprint == small.fingerprint
    for texts in (opened.corpus, opened.queries):
        for i, expected in enumerate(small.encode(list(texts.texts()))):
            np.testing.assert_array_equal(texts.tokens(i), expected)
            assert texts.tokens(i).dtype == np.uint16
    for split in ("train", "../test"):
        with pytest.raises(InputError, match="no split .*; choose one of: test"):
            opened.qrels(split)


def test_a_folder_that_is_no_collection_names_the_command(beir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"not tokenised.*; run: python -m data_prep collection {beir} --tokenizer"):
        Collection.open(beir)
    with pytest.raises(InputError, match="or not a collection; run: python -m data_prep collection FORMAT"):
        Collection.open(tmp_path)


def test_a_copy_and_a_collection_elsewhere_need_no_input(made: Path, small: Tokenizer, tmp_path: Path) -> None:
    build("beir", [made], tmp_path / "out", small)
    copy = shutil.copytree(made, tmp_path / "copy")
    shutil.rmtree(made)
    for folder in (copy, tmp_path / "out"):
        assert Collection.open(folder).qrels("test") == {"1": {"a": 1}, "2": {"c": 2, "b": 0}}


def test_a_reply_that_is_wrong_elsewhere_is_still_relevant(small: Tokenizer, tmp_path: Path) -> None:
    """Two dialogues begin alike: the reply of the one is a wrong candidate of the other."""
    file = tmp_path / "test_self_original.txt"
    for lists in (["fox\t\tfox|cat", "dog\t\tfox|dog"], ["dog\t\tfox|dog", "fox\t\tfox|cat"]):
        file.write_text("".join(f"1 hello\t{own}\n" for own in lists))
        opened = build("convai2", [file], tmp_path / "out", small)
        (judged,) = opened.qrels("test").values()
        texts = {opened.corpus.ids[i]: opened.corpus.text(i) for i in range(len(opened.corpus))}
        assert {texts[document]: score for document, score in judged.items()} == {"fox": 1, "dog": 1, "cat": 0}


def test_a_collection_may_be_made_around_its_input(small: Tokenizer, tmp_path: Path) -> None:
    passages = {"collection.tsv": "7\tfox\n", "queries.dev.tsv": "1\twhat\n", "qrels.dev.tsv": "1\t0\t7\t1\n"}
    write_files(tmp_path / "msmarco", passages)
    write_files(tmp_path / "pairs", {"train.tsv": "query\tdocument\nwhat\tfox\n"})
    write_beir(tmp_path / "beir" / "raw")
    for name, given in (("pairs", "pairs/train.tsv"), ("msmarco", "msmarco"), ("beir", "beir/raw")):
        for _ in range(2):
            build(name, [tmp_path / given], tmp_path / name, small)
        Collection.open(tmp_path / name)
    (tmp_path / "pairs" / "train.tsv").write_text("query\tdocument\nwhat\tdog\n")
    with pytest.raises(InputError, match="changed since tokenising"):
        Collection.open(tmp_path / "pairs")


def test_opening_reads_no_array(made: Path) -> None:
    """Arrays may hold anything: opening looks only at lengths, whatever the number of texts."""
    for path in made.rglob("*.npy"):
        numbers = np.lib.format.open_memmap(path, "r+")
        numbers[: -1 if "ends" in path.name else None] = 0
        numbers.flush()
    Collection.open(made)


@pytest.mark.parametrize(
    ("name", "record", "called"),
    [
        ("pairs", {"query": "fox " * 20, "document": "a"}, repr(("fox " * 13)[:50] + "…")),
        ("pairs", {"query": "b", "document": "a"}, "'b'"),
        ("flagembedding", {"query": "who\nruns", "pos": ["a"]}, "'who runs'"),
        ("tevatron", {"query_id": "5a8b57f2", "query": "b", "positive_passages": [{"text": "a"}]}, "5a8b57f2"),
        ("dstc7", dstc7_item(1, [(1, "x is"), (2, "y is")], ["a"], "a"), "'x is y is'"),
    ],
)
def test_a_query_without_an_id_is_called_by_its_beginning(
    tmp_path: Path, small: Tokenizer, name: str, record: dict[str, object], called: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps([record] if name == "dstc7" else record))
    opened = build(name, [tmp_path / "a.json"], tmp_path / "c", small)
    assert (opened.queries.called(0), opened.corpus.called(0)) == (called, "'a'")


def test_labels_that_are_no_judgements(made: Path) -> None:
    np.save(made / "splits" / "test" / "labels.npy", np.array([0.5, 1, 2], np.float32))
    with pytest.raises(InputError, match=r"its labels are not whole numbers \(1 of 3, from 0.5 to 2\), so not"):
        Collection.open(made).qrels("test")
    Collection.open(made).require_relevance("test")  # as recorded: its labels are not read
    edit(made, lambda record: record.pop("graded"))  # of an older collection
    with pytest.raises(InputError, match="its labels are not whole numbers"):
        Collection.open(made).require_relevance("test")
