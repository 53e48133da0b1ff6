"""MS MARCO: which files make which splits, for passages and documents; every bad line is reported."""

import re
import shutil
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.collections.collection import Collection
from data_prep.collections.formats.msmarco import MsMarco
from data_prep.collections.ids import content_id
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.raw_formats import write_files

PASSAGES = {
    "collection.tsv": '0\tThe fox is quick.\n1\tDogs "sleep".\n2\tThe fox is quick.\n3\tA brown hen\n',
    "queries.train.tsv": "10\twho is quick\n11\twho sleeps\n",
    "queries.dev.tsv": "20\twhat is brown\n21\twhere is the fox\n",
    "queries.dev.small.tsv": "20\twhat is brown\n",
    "queries.eval.tsv": "30\tunjudged\n",
    "qrels.train.tsv": "10\t0\t0\t1\n11\t0\t1\t1\n10\t0\t0\t1\n",
    "qrels.dev.tsv": "20\t0\t3\t1\n21\t0\t0\t1\n",
    "qrels.dev.small.tsv": "20\t0\t3\t1\n",
    "qidpidtriples.train.small.tsv": "10\t0\t1\r\n11\t1\t3\r\n10\t2\t3\r\n10\t0\t2\r\n",
    "top1000.dev": '21\t1\twhere is the fox\tDogs "sleep".\n20\t3\twhat is brown\tA brown hen\n'
    "21\t3\twhere is the fox\tA brown hen\n30\t3\tunjudged\tA brown hen\n",
}
DOCUMENTS = {
    "msmarco-docs.tsv.gz": "D1\thttps://a\tFoxes\tThe fox is quick.\nD02\thttps://b\t.\t\nD3\thttps://c\t\t \n",
    "msmarco-docs-lookup.tsv": "D1\t5\t6\n",
    "msmarco-doctrain-queries.tsv": "1\twho is quick\n",
    "msmarco-docdev-queries.tsv": "2\twhat is it\n",
    "msmarco-doctrain-qrels.tsv": "1 0 D1 1\n",
    "msmarco-docdev-qrels.tsv": "2 0 D3 1\n",
    "msmarco-docdev-top100": "2 Q0 D1 1 -5.1 IndriQL\n2 Q0 D3 2 -5.2 IndriQL\n",
}
TRIPLES = {"triples.train.small.tsv": "who\tthe fox\ta dog\nwho\ta cat\tthe fox\nwhat\ta dog\ta dog \n"}


def made(tmp_path: Path, tokenizer: Tokenizer, *inputs: Path, strict: bool = False) -> Collection:
    return build("msmarco", inputs, tmp_path / "out", tokenizer, strict=strict)


def read_all(inputs: list[Path]) -> list[object]:
    reader = MsMarco(inputs)
    return [*reader.corpus(), *reader.queries(), *(item for split in reader.splits() for item in reader.groups(split))]


def named(folder: Path, *names: str) -> list[Path]:
    return [folder / name for name in names]


def test_passages_are_ranked_trained_on_and_re_ranked(tmp_path: Path, small: Tokenizer) -> None:
    opened = made(tmp_path, small, write_files(tmp_path / "in", PASSAGES))
    assert list(opened.corpus.ids) == ["0", "1", "2", "3"]
    assert opened.corpus.text(1) == 'Dogs "sleep".'
    assert sorted(opened.queries.ids) == ["10", "11", "20", "21", "30"]
    assert {split: opened.qrels(split) for split in opened.splits()} == {
        "train": {"10": {"0": 1}, "11": {"1": 1}},
        "dev": {"20": {"3": 1}, "21": {"0": 1}},
        "dev.small": {"20": {"3": 1}},
        "train.small": {"10": {"0": 1, "1": 0, "2": 1, "3": 0}, "11": {"1": 1, "3": 0}},  # 2 is a positive elsewhere
        "top1000.dev": {"21": {"1": 0, "3": 0, "0": 1}, "20": {"3": 1}},  # 0 is judged, but not on the list of 21
    }


def test_documents_are_title_and_body_or_else_their_url(tmp_path: Path, small: Tokenizer) -> None:
    opened = made(tmp_path, small, write_files(tmp_path / "in", DOCUMENTS))
    assert dict(zip(opened.corpus.ids, opened.corpus.texts(), strict=True)) == {
        "D1": "Foxes The fox is quick.",
        "D02": ".",
        "D3": "https://c",
    }
    assert {split: opened.qrels(split) for split in opened.splits()} == {
        "train": {"1": {"D1": 1}},
        "dev": {"2": {"D3": 1}},
        "dev.top100": {"2": {"D1": 0, "D3": 1}},
    }


def test_a_split_may_be_named_and_have_several_files(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "in", PASSAGES)
    names = named(folder, "collection.tsv", "queries.train.tsv")
    both = (Path(f"mine={folder / name}") for name in ("qrels.train.tsv", "qidpidtriples.train.small.tsv"))
    reader = MsMarco([*names, *both])
    assert reader.splits() == ["mine"]
    assert len(list(reader.groups("mine"))) == 3 + 4


def test_candidates_alone_bring_their_texts(tmp_path: Path, small: Tokenizer) -> None:
    folder = write_files(tmp_path / "in", PASSAGES)
    opened = made(tmp_path, small, *named(folder, "top1000.dev", "qrels.dev.tsv"))  # 0 is in the qrels, but not listed
    assert list(opened.corpus.ids) == ["1", "3"]
    assert list(opened.queries.ids) == ["21", "20", "30"]
    assert {split: opened.qrels(split) for split in opened.splits()} == {
        "top1000.dev": {"21": {"1": 0, "3": 0, "\t2": 1}, "20": {"3": 1}}
    }


def test_triples_of_texts_have_ids_of_their_content(tmp_path: Path, small: Tokenizer) -> None:
    opened = made(tmp_path, small, write_files(tmp_path / "in", TRIPLES))
    assert list(opened.corpus.texts()) == ["the fox", "a dog", "a cat"]
    assert list(opened.queries.texts()) == ["who", "what"]
    fox, dog, cat = map(content_id, ("the fox", "a dog", "a cat"))
    assert opened.qrels("train.small") == {
        content_id("who"): {fox: 1, dog: 0, cat: 1},  # relevant on one line, a negative on another
        content_id("what"): {dog: 1},
    }


def test_byte_order_marks_windows_line_ends_and_headers_are_left_out(tmp_path: Path, small: Tokenizer) -> None:
    headers = {
        "collection.tsv": "pid\tpassage\n",
        "queries.train.tsv": "qid\tquery\n",
        "qrels.train.tsv": "qid\titer\tpid\trel\n",
        "top1000.dev": "qid\tpid\tquery\tpassage\n",
        "qidpidtriples.train.small.tsv": "qid\tpid\tpid\n",
    }
    marked = {
        name: ("\ufeff" + headers.get(name, "") + text).replace("\r", "").replace("\n", "\r\n")
        for name, text in PASSAGES.items()
    }
    folder = write_files(tmp_path / "marked", marked)
    opened = made(tmp_path / "1", small, folder)
    plain = made(tmp_path / "2", small, write_files(tmp_path / "plain", PASSAGES))
    for split in plain.splits():
        assert opened.qrels(split) == plain.qrels(split)
    assert list(opened.corpus.texts()) == list(plain.corpus.texts())


def test_iterators_may_be_taken_twice(tmp_path: Path) -> None:
    reader = MsMarco([write_files(tmp_path / "in", PASSAGES)])
    assert list(reader.corpus()) == list(reader.corpus())
    assert list(reader.queries()) == list(reader.queries())
    assert list(reader.groups("top1000.dev")) == list(reader.groups("top1000.dev"))


@pytest.mark.parametrize(
    ("files", "name", "line", "reason"),
    [
        (PASSAGES, "collection.tsv", "4", "tsv:5: 1 column, expected 2 between tabs: id, text"),
        (PASSAGES, "collection.tsv", "4\ta\tb", "tsv:5: 3 columns"),
        (PASSAGES, "collection.tsv", "4\t ", "tsv:5: 'text' is empty"),
        (PASSAGES, "qrels.dev.tsv", "20\t3\t1\t7\tx", "tsv:3: 5 columns"),
        (PASSAGES, "qrels.dev.tsv", "20\t0\t3\t0", "tsv:3: its query and document have another grade"),
        (PASSAGES, "qidpidtriples.train.small.tsv", "10\t0", "tsv:5: 2 columns, expected 3 .*: qid, positive pid"),
        (PASSAGES, "top1000.dev", "20\t1\twhat", ":5: 3 columns, expected 4"),
        (DOCUMENTS, "msmarco-docdev-top100", "2 Q0 D1 1 2.5", ":3: 1 column, expected 4"),
        (DOCUMENTS, "msmarco-docs-extra-queries.tsv", "D1\t\tt\tb", "tsv:1: 4 columns, expected 2"),
        (TRIPLES, "triples.train.small.tsv", "who\tyes", "tsv:4: 2 columns, expected 3 .*: query, positive, negative"),
        (TRIPLES, "triples.train.small.tsv", "who\tyes\t", "tsv:4: 'negative' is empty"),
        (TRIPLES, "triples.train.small.tsv", " \tyes\tno", "tsv:4: 'query' is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, files: dict[str, str], name: str, line: str, reason: str) -> None:
    folder = write_files(tmp_path / "in", {**files, name: files.get(name, "") + line + "\n"})
    with pytest.raises(InputError, match=re.escape(name.removesuffix(".tsv")) + ".*" + reason):
        read_all([folder])


@pytest.mark.parametrize(
    ("files", "name", "line", "reason"),
    [
        (PASSAGES, "collection.tsv", "3\tmore", ":5: id '3' is already on line 4"),
        (PASSAGES, "queries.dev.tsv", "20\tother", ":3: id '20' has another text on an earlier line"),
        (PASSAGES, "qrels.dev.tsv", "20\t0\t9\t1", ":3: '9' is not among the documents"),
        (PASSAGES, "qrels.dev.tsv", "20\t0\t03\t1", ":3: '03' is not among the documents; '3' is: write"),
        (PASSAGES, "qrels.dev.tsv", "9\t0\t3\t1", ":3: '9' is not among the queries"),
        (PASSAGES, "qidpidtriples.train.small.tsv", "10\t0\t9", ":5: '9' is not among the documents"),
        (PASSAGES, "top1000.dev", "20\t9\twhat\tx", ":5: '9' is not among the documents"),
        (DOCUMENTS, "msmarco-docdev-qrels.tsv", "2 0 D2 1", ":2: 'D2' is not among the documents; 'D02' is"),
    ],
)
def test_ids_that_repeat_or_are_unknown_are_named(
    tmp_path: Path, small: Tokenizer, files: dict[str, str], name: str, line: str, reason: str
) -> None:
    folder = write_files(tmp_path / "in", {**files, name: files[name] + line + "\n"})
    with pytest.raises(InputError, match=re.escape(name) + reason):
        made(tmp_path, small, folder, strict=True)
    assert not (tmp_path / "out").exists()


def test_contradictory_grades_are_refused_in_splits_without_triples(tmp_path: Path, small: Tokenizer) -> None:
    files = {name: text for name, text in PASSAGES.items() if name != "top1000.dev"}  # it needs agreeing grades anyway
    files["qrels.train.tsv"] += "10\t0\t0\t0\n"
    folder = write_files(tmp_path / "in", files)
    with pytest.raises(InputError, match="qrels.train.tsv:4: its query and document have another score"):
        made(tmp_path, small, folder)
    files["qidpidtriples.train.tsv"] = files.pop("qidpidtriples.train.small.tsv")  # of the same split
    opened = made(tmp_path, small, write_files(tmp_path / "joined", files))
    assert opened.qrels("train")["10"] == {"0": 1, "1": 0, "2": 1, "3": 0}


def test_a_document_of_nothing_is_named(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "in", {**DOCUMENTS, "msmarco-docs.tsv.gz": "D1\t\t\t \n"})
    with pytest.raises(InputError, match="docs.tsv.gz:1: 'url, title and body' is empty"):
        list(MsMarco([folder]).corpus())


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["queries.dev.tsv", "qrels.dev.tsv"], r"none of collection.tsv, .* so no texts"),
        (["collection.tsv", "qrels.dev.tsv"], r"no queries\.\*\.tsv, so no queries"),
        (["collection.tsv", "queries.dev.tsv"], r"none of qrels\.\*\.tsv, .*, so no split"),
        (["top1000.dev"], r"top1000.dev: name the qrels that judge its queries too"),
        (["top1000.dev", "qrels.train.tsv"], r"top1000.dev: no candidate is relevant by the qrels"),
        (["qidpidtriples.train.small.tsv", "top1000.dev", "qrels.dev.tsv"], r"small.tsv: name the collection of its"),
        (["collection.tsv", "msmarco-docs.tsv"], r"docs.tsv: .*collection.tsv is a collection already"),
        (
            ["collection.tsv", "triples.train.small.tsv"],
            r"triples.train.small.tsv: its texts have no ids, .*collection",
        ),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, names: list[str], reason: str) -> None:
    folder = write_files(tmp_path / "in", PASSAGES | TRIPLES | {"msmarco-docs.tsv": "D1\tu\tt\tb\n"})
    with pytest.raises(InputError, match=reason):
        MsMarco(named(folder, *names))


def test_a_run_without_a_collection_has_no_texts(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "in", DOCUMENTS)
    reader = MsMarco(named(folder, "msmarco-docdev-top100", "msmarco-docdev-qrels.tsv"))
    with pytest.raises(InputError, match="top100:1: a run has no texts: name the collection"):
        list(reader.corpus())


def test_archives_are_to_be_unpacked(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "in", PASSAGES)
    shutil.make_archive(str(folder / "top1000.dev"), "gztar", folder, "top1000.dev")
    assert "top1000.dev.tar" not in " ".join(map(str, MsMarco([folder]).files()))
    with pytest.raises(InputError, match=r"top1000.dev.tar.gz: it is not named as one .* \(a .tar must be unpacked"):
        MsMarco([folder / "top1000.dev.tar.gz"])
