"""Documents without queries: text files and lines of JSON, in any folders."""

from pathlib import Path

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import write_files


class TestDocuments(FormatContract):
    name = "documents"
    files = {
        "a.jsonl": lines({"text": "The fox is quick."}, {"id": 7, "title": "Dogs", "contents": "Dogs sleep."}),
        "more.jsonl": lines({"_id": "x", "text": " "}),
    }
    given = ["a.jsonl", "more.jsonl"]
    found: dict[str, list[object]] = {}
    ids = ["a.jsonl:1", "7", "x"], []
    remarks = ["1 of 3 documents have no text (the first: x)"]
    refused = [
        ("a.jsonl", {"body": "a"}, ":3: 'text' is missing or not a string"),
        ("a.jsonl", {"_id": 1.5, "text": "a"}, ":3: '_id' is missing, or neither text nor a whole number"),
        ("more.jsonl", {"_id": "7", "text": "a"}, ":2: id '7' is already in "),
        ({"a.jsonl": "\n", "more.jsonl": "\n"}, "corpus: the input contains no texts"),
        ({"a.txt": "%PDF-1.7 ..."}, ["a.txt"], "a.txt: a PDF|a.txt: PDF"),
        ({"empty/a.png": ""}, ["empty"], "no .txt or .jsonl file in this folder"),
    ]


def test_folders_of_text_files(tmp_path: Path, small: Tokenizer) -> None:
    folder = write_files(tmp_path / "in", {"deep/one.txt": "The fox\nis quick.\n", "b.jsonl": lines({"text": "Dogs"})})
    (folder / "deep" / "two.TXT").write_bytes("Ein Text, über die Füchse".encode("latin-1"))
    (folder / "picture.png").write_bytes(b"\x89PNG")
    opened = build("documents", [folder], tmp_path / "out", small)
    assert [*opened.corpus.ids] == ["b.jsonl:1", "deep/one.txt", "deep/two.TXT"]
    assert [opened.corpus.text(i) for i in (1, 2)] == ["The fox\nis quick.", "Ein Text, über die Füchse"]
    assert (len(opened.queries), opened.splits()) == (0, [])
