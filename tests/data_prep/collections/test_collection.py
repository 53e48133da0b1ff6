"""Open a collection: what it holds; unfinished, stale and damaged ones are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.beir_folder import HEADER, write_beir
from tests.data_prep.collections.raw_formats import dstc7_item, write_files
from tests.data_prep.forge import edit


def test_a_collection_has_the_tokens_of_its_texts(beir: Path, small: Tokenizer) -> None:
    opened = build("beir", [beir], beir, small)
    assert opened.tokenizer.fingerprint == small.fingerprint
    for texts in (opened.corpus, opened.queries):
        for i, expected in enumerate(small.encode(list(texts.texts()))):
            np.testing.assert_array_equal(texts.tokens(i), expected)
            assert texts.tokens(i).dtype == np.uint16


def test_a_missing_split_names_the_existing_ones(beir: Path, small: Tokenizer) -> None:
    (beir / "qrels" / "dev.tsv").write_text(HEADER + "1\tb\t1\n")
    opened = build("beir", [beir], beir, small)
    for split in ("train", "../test"):
        with pytest.raises(InputError, match="no split .*; choose one of: dev, test"):
            opened.qrels(split)


def test_a_folder_that_is_no_collection_names_the_command(beir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"not tokenised.*; run: python -m data_prep collection {beir} --tokenizer"):
        Collection.open(beir)
    with pytest.raises(InputError, match="or not a collection; run: python -m data_prep collection FORMAT"):
        Collection.open(tmp_path)


@pytest.mark.parametrize("name", ["queries.jsonl", "corpus.jsonl", "qrels/test.tsv"])
def test_files_that_changed_since_are_noticed(beir: Path, small: Tokenizer, name: str) -> None:
    build("beir", [beir], beir, small)
    content = (beir / name).read_bytes()
    for changed in (content + b"\n", content.replace(b"1", b"2").replace(b"fox", b"dog").replace(b"Dogs", b"Cats")):
        (beir / name).write_bytes(changed)
        with pytest.raises(InputError, match=f"changed since tokenising; run: .* collection {beir} --tokenizer"):
            Collection.open(beir)
    (beir / name).write_bytes(content)  # newer, but with the same content
    Collection.open(beir)
    (beir / name).unlink()
    with pytest.raises(InputError, match="changed since"):
        Collection.open(beir)


def test_new_judgements_and_another_tokenizer(beir: Path, small: Tokenizer, large: Tokenizer, tmp_path: Path) -> None:
    build("beir", [beir], beir, small)
    shutil.copytree(beir, tmp_path / "copy")
    Collection.open(tmp_path / "copy")
    (beir / "qrels" / "dev.tsv").write_text(HEADER + "1\tb\t1\n")
    with pytest.raises(InputError, match="changed since"):
        Collection.open(beir)
    shutil.copy(large.path, tmp_path / "copy" / "tokenizer.json")
    with pytest.raises(InputError, match="changed since"):
        Collection.open(tmp_path / "copy")


def test_a_collection_elsewhere_does_not_need_its_input(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    build("beir", [beir], tmp_path / "out", small)
    shutil.rmtree(beir)
    assert Collection.open(tmp_path / "out").qrels("test") == {"1": {"a": 1}, "2": {"c": 2, "b": 0}}


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
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "train.tsv").write_text("query\tdocument\nwhat\tfox\n")
    passages = {"collection.tsv": "7\tfox\n", "queries.dev.tsv": "1\twhat\n", "qrels.dev.tsv": "1\t0\t7\t1\n"}
    write_files(tmp_path / "msmarco", passages)
    write_beir(tmp_path / "beir" / "raw")
    for name, given in (("pairs", "pairs/train.tsv"), ("msmarco", "msmarco"), ("beir", "beir/raw")):
        for _ in range(2):
            build(name, [tmp_path / given], tmp_path / name, small)
        Collection.open(tmp_path / name)
    (tmp_path / "pairs" / "train.tsv").write_text("query\tdocument\nwhat\tdog\n")
    with pytest.raises(InputError, match="changed since tokenising"):
        Collection.open(tmp_path / "pairs")


def test_opening_reads_no_array(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    """Arrays may hold anything: opening looks only at lengths, whatever the number of texts."""
    out = build("beir", [beir], tmp_path / "out", small).directory
    for path in out.rglob("*.npy"):
        array = np.lib.format.open_memmap(path, "r+")
        array[: -1 if "ends" in path.name else None] = 0
        array.flush()
    Collection.open(out)


@pytest.mark.parametrize(
    ("file", "array", "reason"),
    [
        ("corpus/token_ends.npy", np.array([9, 5, 1]), "damaged"),
        ("corpus/token_ends.npy", np.array([9]), "damaged"),
        ("corpus/tokens.npy", np.array([3] * 9, np.int64), "damaged"),
        ("corpus/tokens.npy", np.array([{}], object), "cannot be read"),
        ("corpus/ids.npy", np.array([7], np.uint8), "damaged"),
        ("corpus/id_order.npy", np.array([0, 1]), "damaged"),
        ("queries/text.npy", None, "cannot be read"),
        ("splits/test/labels.npy", np.ones(1, np.float32), "damaged"),
    ],
)
def test_damaged_arrays(beir: Path, small: Tokenizer, file: str, array: np.ndarray | None, reason: str) -> None:
    build("beir", [beir], beir, small)
    if array is None:
        (beir / file).write_bytes(b"\x93NUMPY")
    else:
        np.save(beir / file, array, allow_pickle=True)
    with pytest.raises(InputError, match=f"{reason}.* make the collection again"):
        Collection.open(beir).groups("test")


def test_damage_that_opening_does_not_see_is_refused_where_it_is_read(beir: Path, small: Tokenizer) -> None:
    opened = build("beir", [beir], beir, small)
    tokens = np.lib.format.open_memmap(beir / "corpus" / "tokens.npy", "r+")
    tokens[0] = 60_000
    tokens.flush()
    with pytest.raises(InputError, match="tokens.npy: text 0 has a token beyond the vocabulary"):
        Collection.open(beir).corpus.tokens(0)
    ends = np.lib.format.open_memmap(beir / "corpus" / "text_ends.npy", "r+")
    ends[0] = 1 << 40
    ends.flush()
    with pytest.raises(InputError, match="text_ends.npy: row 0 is damaged"):
        Collection.open(beir).corpus.text(0)
    assert opened.directory == beir


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.pop("arrays"), "damaged"),
        (lambda m: m.update(format=2), "format is version 2, this code reads 1"),
        (lambda m: m["counts"]["corpus"].update(texts=9), "its number of texts"),
    ],
)
def test_a_bad_manifest_is_refused(beir: Path, small: Tokenizer, change, reason: str) -> None:
    build("beir", [beir], beir, small)
    edit(beir, change)
    with pytest.raises(InputError, match=f"{reason}.*; run: python -m data_prep collection"):
        Collection.open(beir)


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


def test_labels_that_are_no_judgements(beir: Path, small: Tokenizer) -> None:
    build("beir", [beir], beir, small)
    np.save(beir / "splits" / "test" / "labels.npy", np.array([0.5, 1, 2], np.float32))
    with pytest.raises(InputError, match=r"its labels are not whole numbers \(1 of 3, from 0.5 to 2\), so not"):
        Collection.open(beir).qrels("test")
    Collection.open(beir).require_relevance("test")  # as recorded: its labels are not read
    edit(beir, lambda manifest: manifest.pop("graded"))  # of an older collection
    with pytest.raises(InputError, match="its labels are not whole numbers"):
        Collection.open(beir).require_relevance("test")
