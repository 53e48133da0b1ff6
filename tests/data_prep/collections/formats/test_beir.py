"""BEIR's folders: titles, qrels and pools."""

import bz2
import gzip
import json
import lzma
import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.formats.beir import Beir
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.beir_folder import CORPUS, HEADER, QUERIES
from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import write_files, write_parquet

QRELS = "qrels/test.tsv"
POOL = "pools/test.txt"


class TestBeir(FormatContract):
    name = "beir"
    files = {
        "corpus.jsonl": lines(*CORPUS),
        "queries.jsonl": lines(*QUERIES),
        QRELS: HEADER + "1\ta\t1\n2\tc\t2\n2\tb\t0\n",
        POOL: "c\na\nb\n",
    }
    given = ["."]
    found = {"test": [("fox", {"Foxes The quick brown fox.": 1}), ("dog sleeps", {"Dogs sleep.": 2, "": 0})]}
    ids = ["a", "b", "c"], ["1", "2"]
    pools = {"test": ["Dogs sleep.", "Foxes The quick brown fox.", ""]}
    remarks = ["1 of 3 documents have no text (the first: b)"]
    refused = [
        ("corpus.jsonl", "{", ":4: not JSON"),
        ("corpus.jsonl", "[1]", ":4: not a JSON object"),
        ("corpus.jsonl", {"text": "x"}, ":4: '_id' is missing, or neither text nor a whole number"),
        ("corpus.jsonl", {"_id": 7.5, "text": "x"}, ":4: '_id' is missing, or neither text nor a whole number"),
        ("corpus.jsonl", {"_id": True, "text": "x"}, ":4: '_id' is missing, or neither text nor a whole number"),
        ("corpus.jsonl", {"_id": "x\ty", "text": "x"}, ":4: _id .* contains a tab"),
        ("corpus.jsonl", {"_id": "x", "document_text": "y"}, ":4: 'text' is missing"),
        ("corpus.jsonl", {"_id": "x", "title": 3, "text": ""}, ":4: 'title' is not a string"),
        ("corpus.jsonl", {"_id": "b", "text": "x"}, ":4: id 'b' is already on line 2, of another text"),
        ("corpus.jsonl", '{"_id": "\\ud800", "text": "x"}', ":4: has half a character"),
        ("corpus.jsonl", '{"_id": "x", "text": "", "more": ' + "[" * 100_000, ":4: not JSON"),
        ("queries.jsonl", {"_id": "1", "text": "x"}, ":3: id '1' is already on line 1"),
        (POOL, "x", ":4: 'x' is not among the documents"),
        ("queries.jsonl", {"_id": "3", "text": "x", "excluded_ids": "a"}, ":3: 'excluded_ids' is not a list"),
        ("queries.jsonl", {"_id": "3", "text": "x", "excluded_ids": [None]}, ":3: 'excluded_ids' is missing, or"),
        ("queries.jsonl", {"_id": "1", "text": "fox", "excluded_ids": ["a"]}, "v:2: .* relevant .*, and excluded"),
        ({"pools/tset.txt": "c\n"}, "pools/tset.txt: a pool of no split: the splits are test; rename or remove it"),
        ({QRELS: "1\ta\t1\n"}, "test.tsv:1: the first line must be the header"),
        ({QRELS: HEADER + "1\ta\n"}, "test.tsv:2: 2 columns"),
        ({QRELS: HEADER + "1\ta\t1\n9\ta\t1\n"}, "test.tsv:3: '9' is not among the queries"),
        ({QRELS: HEADER + "1\tz\t1\n"}, "test.tsv:2: 'z' is not among the documents"),
        ({QRELS: HEADER + "01\ta\t1\n"}, "test.tsv:2: '01' is not among the queries; '1' is"),
        ({QRELS: HEADER + "1\ta\t1.5\n"}, "test.tsv:2: score '1.5' is not a whole number"),
        ({QRELS: HEADER + f"1\ta\t{'9' * 39}\n"}, "test.tsv:2: score 1e\\+39 is not a number that fp32 can hold"),
        ({QRELS: HEADER + f"1\ta\t{'9' * 5000}\n"}, "test.tsv:2: score '9{39} is not a whole number"),
        ({QRELS: HEADER + "1\ta\t1_0\n"}, "test.tsv:2: score '1_0' is not a whole number"),
        ({QRELS: HEADER + "1\ta\t1\n1\ta\t0\n"}, "test.tsv:3: .* have another score on an earlier line"),
        ({QRELS: HEADER}, "test: the input has no judgements"),
        ({QRELS: None}, "no SPLIT.tsv"),
        ({"qrels/my split.tsv": HEADER}, "qrels/my split.tsv: names the split 'my split'; rename it with only letters"),
        ({"qrels/a+b.tsv": HEADER}, "qrels/a\\+b.tsv: names the split 'a\\+b'"),
        ({"qrels/²\udce9.tsv": HEADER}, "²\ufffd.tsv: its name is not UTF-8"),
        ({"queries.jsonl": None}, "queries.jsonl: no such file"),
        ({"queries.jsonl": "\n"}, "queries: the input contains no texts"),
    ]


def made(folder: Path, tokenizer: Tokenizer) -> Collection:
    return build("beir", [folder], folder, tokenizer)


def test_a_pool_is_the_whole_corpus_or_its_known_documents(beir: Path, small: Tokenizer) -> None:
    assert made(beir, small).pool("test").tolist() == [0, 1, 2]
    write_files(beir, {POOL: "c\nx\n", "qrels/._test.tsv": "\0", "pools/.b.txt": "\0"})
    assert made(beir, small).pool("test").tolist() == [2]


def test_queries_without_text_are_counted(beir: Path, small: Tokenizer) -> None:
    with open(beir / "queries.jsonl", "a") as stream:
        stream.write('{"_id": "3", "text": " "}\n{"_id": "4", "text": ""}\n')
    (beir / QRELS).write_text(HEADER + "1\ta\t1\n4\tc\t1\n")
    assert made(beir, small).manifest["remarks"] == [
        f"2 of 4 queries have no text (the first: {beir / 'queries.jsonl'}:3)",
        "1 of 3 documents have no text (the first: b)",
    ]


def test_every_file_may_be_compressed(beir: Path, small: Tokenizer) -> None:
    write_files(beir, {POOL: "c\na\nb\n"})
    plain = made(beir, small)
    files = [path.relative_to(beir) for path in Beir([beir]).paths]
    names = [f"{file}{ending}" for file, ending in zip(files, (".gz", ".xz", ".bz2", ".zst"), strict=True)]
    for file, name in zip(files, names, strict=True):
        (beir / name).write_bytes(squeeze((beir / name).suffix, (beir / file).read_bytes()))
    assert [path.relative_to(beir) for path in Beir([beir]).paths] == files  # the plain ones
    for file in files:
        (beir / file).unlink()
    with pytest.raises(InputError, match="changed since tokenising"):
        Collection.open(beir)
    opened = made(beir, small)
    assert {record["file"] for record in opened.manifest["inputs"]} == {*names}
    assert list(Collection.open(beir).corpus.texts()) == list(plain.corpus.texts())
    assert opened.qrels("test") == {"1": {"a": 1}, "2": {"c": 2, "b": 0}}
    assert opened.pool("test").tolist() == [2, 0, 1]


def test_a_folder_of_nanobeir_has_the_same_texts_and_judgements(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    plain, nano = made(beir, small), tmp_path / "nano"
    for part in ("corpus", "queries"):
        rows = [json.loads(line) for line in (beir / f"{part}.jsonl").read_text().splitlines()]
        write_parquet(nano / part / "train-00000-of-00001.parquet", rows)
    judged = [{"query-id": "1", "corpus-id": "a"}, {"query-id": "2", "corpus-id": "c", "score": None}]
    write_parquet(nano / "qrels" / "train-00000-of-00002.parquet", judged[:1])
    write_parquet(nano / "qrels" / "train-00001-of-00002.parquet", judged[1:])
    other = [{"query-id": "2", "corpus-id": "a", "score": 1}]
    for name in ("test.full-00000-of-00001-0a1b", "test-hard", "train.part1"):
        write_parquet(nano / "qrels" / f"{name}.parquet", other)
    write_parquet(nano / "qrels" / "test-00000-of-00001.parquet", [{**judged[0], "score": 2}])
    write_files(nano, {"pools/train.txt": "c\na\n"})
    opened = build("beir", [nano], tmp_path / "out", small)
    assert opened.pool("train").tolist() == [2, 0]
    assert str(nano / "pools" / "train.txt") in {record["file"] for record in opened.manifest["inputs"]}
    assert list(opened.corpus.texts()) == list(plain.corpus.texts())
    assert list(opened.queries.texts()) == list(plain.queries.texts())
    assert opened.splits() == ["test", "test-hard", "test.full", "train", "train.part1"]
    assert all(opened.qrels(split) == {"2": {"a": 1}} for split in ("test-hard", "test.full", "train.part1"))
    assert opened.qrels("train") == {"1": {"a": 1}, "2": {"c": 1}}
    assert opened.qrels("test") == {"1": {"a": 2}}
    shutil.rmtree(nano / "pools")
    shutil.rmtree(nano / "qrels")  # BEIR's own repositories have the judgements elsewhere, as .tsv
    shutil.copytree(beir / "qrels", nano / "qrels")
    again = build("beir", [nano], tmp_path / "again", small)
    assert {split: again.qrels(split) for split in again.splits()} == {
        split: plain.qrels(split) for split in plain.splits()
    }


def test_bad_rows_of_nanobeir_are_named(small: Tokenizer, tmp_path: Path) -> None:
    nano = tmp_path / "nano"
    one, many, half = {"_id": "1", "text": "fox"}, "00001-of-00002", [{"query-id": "1", "corpus-id": "1", "score": 1.5}]
    for files, reason in (
        ({f"corpus/train-{many}": [one]}, f"{many}.parquet: corpus has 1 files of train, not each of its 2 shards"),
        (
            {"corpus/train": [one, {"_id": "2", "text": None}], "queries/train": [one], "qrels/train": half},
            "corpus/train.parquet: row 2: 'text' is missing or not a string",
        ),
        ({"corpus/train": [one]}, "qrels/train.parquet: row 1: score '1.5' is not a whole number"),
    ):
        for name, rows in files.items():
            write_parquet(nano / f"{name}.parquet", rows)
        with pytest.raises(InputError, match=reason):
            build("beir", [nano], tmp_path / "out", small)
        (nano / "corpus" / f"train-{many}.parquet").unlink(missing_ok=True)


def test_mteb_has_numbers_as_ids_and_documents_that_do_not_count(small: Tokenizer, tmp_path: Path) -> None:
    mteb = tmp_path / "mteb"

    def write(folder: str, *rows: dict[str, object]) -> None:
        if folder == "en-corpus":
            write_parquet(mteb / folder / "test-00000-of-00001.parquet", list(rows))
        else:
            write_files(mteb, {f"{folder}/test.jsonl": lines(*rows)})

    write("en-corpus", *({"id": i, "title": "", "text": text} for i, text in ((7, "fox"), (8, "dog"), (9, "hen"))))
    write("en-queries", {"id": 1, "text": "who", "excluded_ids": [8, 5]}, {"id": 2, "text": "what", "excluded_ids": []})
    judged = [{"query-id": 1, "corpus-id": i, "score": score} for i, score in ((7, 1), (8, 0), (9, 0))]
    write("en-qrels", *judged, {"query-id": 2, "corpus-id": 8, "score": 2})
    with pytest.raises(InputError, match="mteb: has subsets: name one, such as .*mteb/en$"):
        build("beir", [mteb], tmp_path / "out", small)
    opened = build("beir", [mteb / "en"], tmp_path / "en", small)
    assert opened.qrels("test") == {"1": {"7": 1, "9": 0}, "2": {"8": 2}}
    assert [opened.excluded.of(query).tolist() for query in range(2)] == [[1], []]
    lacks = f"1 of 2 excluded documents are not in the corpus (the first: {mteb / 'en-queries/test.jsonl'}:1: 5)"
    assert opened.manifest["remarks"] == [lacks]
    for part, folder in {"corpus": "corpus", "queries": "queries", "qrels": "data"}.items():
        (mteb / f"en-{part}").rename(mteb / folder)
    write("top_ranked", {"query-id": 1, "corpus-ids": [7]})
    whole = build("beir", [mteb], tmp_path / "whole", small)
    assert whole.qrels("test") == opened.qrels("test")
    assert whole.manifest["remarks"][0].startswith(f"{mteb / 'top_ranked'}: is not read, so each query ranks all doc")


class TestWhatOccursTwice(TestBeir):  # is kept once
    files = {
        "corpus.jsonl": lines(*CORPUS, CORPUS[2]),
        "queries.jsonl": lines(*QUERIES, QUERIES[0] | {"more": 1}),
        QRELS: HEADER + "1\ta\t1\n2\tc\t2\n2\tb\t0\n2\tc\t2.0\n",
        POOL: "c\na\nb\na\n",
    }
    remarks = [
        "corpus: left out 1 that occur before (the first: {folder}/corpus.jsonl:4)",
        "queries: left out 1 that occur before (the first: {folder}/queries.jsonl:3)",
        "split test: left out 1 judgements that occur before (the first: {folder}/qrels/test.tsv:5)",
        "split test: left out 1 documents of its pool that occur before (the first: {folder}/pools/test.txt:4)",
        *TestBeir.remarks,
    ]
    refused = []


def squeeze(ending: str, data: bytes) -> bytes:
    if ending == ".zst":
        return pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    return {".gz": gzip, ".xz": lzma, ".bz2": bz2}[ending].compress(data)
