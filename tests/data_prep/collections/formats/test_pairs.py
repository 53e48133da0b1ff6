"""Pairs in every kind of table: scores, several documents of a query."""

import json

from tests.data_prep.collections.formats.contract import FormatContract, lines

RECORDS = [
    {"id": 1, "sentence1": "fox", "sentence2": "a red fox", "score": 4.5},
    {"id": 2, "sentence1": "dog", "sentence2": "a dog", "score": 5},
    {"id": 3, "sentence1": "fox", "sentence2": "a dog", "score": 0},
]
TABLE = [tuple(RECORDS[0]), *(tuple(record.values()) for record in RECORDS)]
HEAD = "query\tdocument"
SPLITS = ("train", "csv", "lines", "array")
XY = {"query": "x", "document": "y"}


class TestTables(FormatContract):
    name = "pairs"
    files = {
        "a.tsv": lines(*TABLE),
        "a.csv": lines(*(",".join(map(str, row)) for row in TABLE)),
        "a.jsonl": lines(*RECORDS),
        "a.json": json.dumps(RECORDS, indent=1),
    }
    given = ["a.tsv", "csv=a.csv", "lines=a.jsonl", "array=a.json"]
    found = dict.fromkeys(SPLITS, [("fox", {"a red fox": 4.5, "a dog": 0.0}), ("dog", {"a dog": 5.0})])
    remarks = [
        f"split {split}: its labels are not whole numbers (1 of 3, from 0 to 5): they are scores, from which only the "
        "losses kl and margin_mse learn"
        for split in SPLITS
    ]
    refused = [
        ({"a.csv": 'query,document\nx,"y\nz'}, "a.csv:2: not CSV .* to .*a.csv:3; does a quote"),
        ({"a.tsv": "fox\ta red fox\n"}, "a.tsv: its columns are fox, a red fox; name them query, document, and score"),
        ({"a.tsv": "query\n"}, "a.tsv: its columns are query; name them"),
        ({"a.tsv": f"{HEAD}\tnegative\nx\ty\tz\n"}, "a.tsv: its columns .* are of the format triples"),
        (
            {"a.tsv": "document\ttitle\nx\ty\n"},
            "a.tsv: its columns are document, title; name them",
        ),  # which is the query?
        ({"a.tsv": f"{HEAD}\tscore\tlabel\nx\ty\t1\t1\n"}, "a.tsv: its columns are query, document, score, label"),
        ({"a.tsv": "query\tquery\nx\ty\n"}, "a.tsv:1: two columns are named 'query'; is this line a header"),
        ({"a.tsv": f"{HEAD}\nx\ty\nx\n"}, "a.tsv:3: 1 column, the header has 2"),
        ({"a.tsv": f"{HEAD}\rx\ty\r"}, "a.tsv: its lines end with a carriage return alone; convert it, as tr"),
        ({"a.tsv": f"{HEAD}\nx\ty\tz\n"}, "a.tsv:2: 3 columns, the header has 2"),
        ({"a.tsv": f"{HEAD}\n\tx\n"}, "a.tsv:2: 'query' is empty"),
        ({"a.tsv": f"{HEAD}\nx\t \n"}, "a.tsv:2: 'document' is empty"),
        ({"a.tsv": f"{HEAD}\tscore\nx\ty\tgood\n"}, "a.tsv:2: score 'good' is not a number"),
        ({"a.tsv": f"{HEAD}\tscore\nx\ty\tnan\n"}, "a.tsv:2: score nan is not a number that fp32 can hold"),
        ({"a.tsv": f"{HEAD}\n"}, ["a.tsv"], "the input contains no texts"),
        ({"b.tsv": f"{HEAD}\nx\ty\n"}, ["a.tsv", "b.tsv"], "split train: .*a.tsv .*b.tsv"),
        ({"a.tsv": "[]"}, "a.tsv: its columns are none"),
        ({"a.tsv": lines(XY | {"document": 7})}, "a.tsv:1: 'document' is missing or not a string"),
        ({"a.tsv": lines(XY, {"query": "x"})}, "a.tsv:2: 'document' is missing"),
        ({"a.tsv": lines(XY | {"score": None})}, "a.tsv:1: score None is not a number"),
        ({"a.tsv": '[{"query": "x", "document": "y"},\n {"query": "x"}]'}, "a.tsv:2: element 2: 'document' is missing"),
        ({"a.tsv": lines(XY, XY | {"Score": 0})}, "a.tsv:2: has 'Score', which"),
        ({"a.tsv": lines(XY, XY | {"neg": "y"})}, "a.tsv:2: has 'neg', which"),
        ({"a.tsv": '[{"query": "x", "score": 1, "text": "y"},\n{"query": "x", "label": 0}]'}, "v:2: element 2: has"),
    ]


class TestColumnsAndScores(FormatContract):
    name = "pairs"
    files = {
        "a.tsv": 'answer\tquestion\n"a" red fox\tfox\na dog\tfox\na dog\tfox\n',  # positive, without scores
        "dev.tsv": f"{HEAD}\tscore\nfox\ta fox\t5\nfox\ta dog\t-1\ndog\ta hen\t1.0\n",  # whole scores
        "repeated.csv": 'Query,Document,Label\nfox,"a, b",1\nfox,"a, b",0\n',  # the higher one counts
        "unknown.jsonl": lines({"title": "fox", "body": "a red fox", "idx": 3}),
        "later.jsonl": lines(XY, XY | {"document": "z", "id": 3, "source": "web"}),  # other keys of a later object
    }
    given = ["a.tsv", "dev.tsv", "repeated=repeated.csv", "unknown=unknown.jsonl", "later=later.jsonl"]
    found = {
        "train": [("fox", {'"a" red fox': 1, "a dog": 1})],
        "dev": [("fox", {"a fox": 5, "a dog": -1}), ("dog", {"a hen": 1})],
        "repeated": [("fox", {"a, b": 1})],
        "unknown": [("fox", {"a red fox": 1})],
        "later": [("x", {"y": 1, "z": 1})],
    }
    remarks = [
        "{folder}/unknown.jsonl: by the order of its columns, 'title' is the query, 'body' the document",
        "split dev: its labels are grades from -1 to 5: those above 0, 2 of 3, count as relevant",
    ]
