"""BRIGHT's domains: relevant documents of either length, and those that do not count."""

from pathlib import Path

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices
from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import write_files

DOCUMENTS = [
    {"id": "fox/1.txt", "content": "The fox."},
    {"id": "fox/2.txt", "content": "Its den."},
    {"id": "3", "content": ""},
]
LONG = [{"id": "fox.txt", "content": "The fox. Its den."}, {"id": "3", "content": "Dogs."}]
EXAMPLES = [
    {
        "query": "who is quick",
        "reasoning": "",
        "id": "0",
        "excluded_ids": ["N/A"],
        "gold_ids": ["fox/1.txt", "fox/1.txt"],
        "gold_ids_long": ["fox.txt"],
    },
    {"query": "where", "id": 1, "excluded_ids": ["3"], "gold_ids": ["fox/2.txt"], "gold_ids_long": ["fox.txt"]},
]


class TestBright(FormatContract):
    name = "bright"
    files = {"documents/a.jsonl": lines(*DOCUMENTS), "examples/a.jsonl": lines(*EXAMPLES)}
    found = {"test": [("who is quick", {"The fox.": 1}), ("where", {"Its den.": 1})]}
    remarks = ["1 of 3 documents have no text (the first: 3)"]
    refused = [
        ("documents/a.jsonl", {"id": "4", "text": "x"}, ":4: 'content' is missing or not a string"),
        ("documents/a.jsonl", {"id": None, "content": "x"}, ":4: 'id' is missing, or neither"),
        ("examples/a.jsonl", EXAMPLES[0] | {"id": "2", "gold_ids": "x"}, ":3: 'gold_ids' is missing or not a list"),
        ("examples/a.jsonl", EXAMPLES[0] | {"id": "2", "gold_ids": ["x"]}, ":3: 'x' is not among the documents"),
        ("examples/a.jsonl", EXAMPLES[0] | {"id": "2", "excluded_ids": ["fox/1.txt"]}, ":3: its document is relevant"),
        ("examples/a.jsonl", EXAMPLES[0] | {"query": "x"}, ":3: id '0' is already on line 1, of another text"),
        ({"examples/a.jsonl": None}, "a.jsonl: no such file"),
        ({"examples/a.jsonl": lines(*DOCUMENTS)}, "name the documents and the examples of a domain"),
        ({"examples/a.jsonl": lines({"id": 1, "query": "x"})}, "a.jsonl: not of BRIGHT: its columns are not id,"),
    ]


def test_long_documents_have_their_own_answers(tmp_path: Path, small: Tokenizer) -> None:
    folder = write_files(tmp_path, {"long_documents/a.jsonl": lines(*LONG), "examples/a.jsonl": lines(*EXAMPLES)})
    named = [folder / "long_documents" / "a.jsonl", Path(f"bio={folder / 'examples' / 'a.jsonl'}")]
    opened = build("bright", named, tmp_path / "out", small)
    assert choices(opened, "bio") == [("who is quick", {LONG[0]["content"]: 1}), ("where", {LONG[0]["content"]: 1})]
    assert [opened.excluded.of(query).tolist() for query in range(2)] == [[], [1]]
