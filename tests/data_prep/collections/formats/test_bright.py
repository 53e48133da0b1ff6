"""BRIGHT's domains: relevant documents of either length, and those that do not count."""

from tests.data_prep.collections.formats.contract import FormatContract, lines

DOCUMENTS = [
    {"id": name, "content": text} for name, text in (("fox/1.txt", "The fox."), ("fox/2.txt", "Its den."), ("3", ""))
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


class TestLongDocuments(FormatContract):  # have their own answers
    name = "bright"
    files = {"long_documents/a.jsonl": lines(*LONG), "examples/a.jsonl": lines(*EXAMPLES)}
    given = ["long_documents/a.jsonl", "bio=examples/a.jsonl"]
    found = {"bio": [("who is quick", {LONG[0]["content"]: 1}), ("where", {LONG[0]["content"]: 1})]}
    excluded = [[], [1]]
