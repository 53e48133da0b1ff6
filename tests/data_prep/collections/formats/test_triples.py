"""Triples in every kind of table: one or more negatives, scores."""

from tests.data_prep.collections.formats.contract import FormatContract, lines

HEAD = "query\tdocument\tnegative"
ONE = {"query": "x", "pos": "y", "neg": "z"}
MANY = {"query": "fox", "negative_1": "a dog", "negative_2": "a stone", "positive": "a red fox"}  # by names, not order


class TestTriples(FormatContract):
    name = "triples"
    files = {"a.tsv": "anchor\tpositive\tnegative\nfox\ta red fox\ta dog\nfox\ta fox\ta red fox\ndog\ta dog\ta fox\n"}
    found = {"train": [("fox", {"a red fox": 1, "a dog": 0, "a fox": 1}), ("dog", {"a dog": 1, "a fox": 0})]}
    refused = [
        ({"a.tsv": "fox\ta red fox\ta dog\n"}, "a.tsv: its columns are fox, a red fox, a dog; name them query,"),
        ({"a.tsv": "query\tdocument\nx\ty\n"}, "a.tsv: its columns are query, document; name them"),
        ({"a.tsv": f"{HEAD}\nx\ty\n"}, "a.tsv:2: 2 columns, the header has 3"),
        ({"a.tsv": f"{HEAD}\nx\ty\t \n"}, "a.tsv:2: 'negative' is empty"),
        ({"a.tsv": f"{HEAD}\tlabel\nx\ty\tz\t3\n"}, "a.tsv:2: 'label' is not a list with a score of the document"),
        ({"a.tsv": lines(ONE | {"pos": ["y"]})}, "a.tsv:1: 'pos' is missing or not a string"),
        ({"a.tsv": lines(ONE | {"score": [1]})}, "a.tsv:1: 'score' is not a list"),
        ({"a.tsv": lines(ONE | {"score": [1, None]})}, "a.tsv:1: score None is not a number"),
        ({"a.tsv": lines(ONE, ONE | {"neg_2": "w"})}, "a.tsv:2: has 'neg_2', which the file's first object has not"),
    ]


class TestColumnsAndScores(FormatContract):
    name = "triples"
    files = {
        "a.jsonl": lines(MANY),
        "b.jsonl": lines({"score": [9, 2.5, -1]} | MANY),
        "c.jsonl": lines({"q": "fox", "good": "a red fox", "bad": "a dog"}),
    }
    given = ["a.jsonl", "scored=b.jsonl", "unknown=c.jsonl"]
    found = {
        "train": [("fox", {"a red fox": 1, "a dog": 0, "a stone": 0})],
        "scored": [("fox", {"a red fox": 9, "a dog": 2.5, "a stone": -1})],
        "unknown": [("fox", {"a red fox": 1, "a dog": 0})],
    }
    remarks = [
        "{folder}/c.jsonl: by the order of its columns, 'q' is the query, 'good' the document, 'bad' a negative",
        "split scored: its labels are not whole numbers (1 of 3, from -1 to 9): they are scores, from which only the "
        "losses kl and margin_mse learn",
    ]
