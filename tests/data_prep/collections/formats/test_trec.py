"""TREC's test collections: documents as JSON or rows, topics and qrels."""

from tests.data_prep.collections.formats.contract import FormatContract, lines

TOPICS, JUDGED, CORPUS = "topics.robust.tsv", "qrels.robust.txt", "corpus.jsonl"
FOX, DOGS = "Foxes The fox is quick.", "Dogs sleep."


class TestTrec(FormatContract):
    name = "trec"
    files = {
        CORPUS: lines(
            {"id": "FT-1", "title": "Foxes", "contents": "The fox is quick."}, {"docno": "FT-02", "text": "Hens"}
        ),
        "collection.more.tsv.gz": "FT-3\tDogs sleep.\n",
        TOPICS: "301\twho is quick\n302\twho sleeps\n",
        JUDGED: "301 0 FT-1 2\n301 0 FT-3 0\n302 0 FT-3 1\n",
        "qrels.tsv": "query-id\tcorpus-id\tscore\n301\tFT-1\t1\n",
        "README": "not of the collection",
    }
    given = ["."]
    found = {
        "robust": [("who is quick", {FOX: 2, DOGS: 0}), ("who sleeps", {DOGS: 1})],
        "train": [("who is quick", {FOX: 1})],
    }
    ids = ["FT-3", "FT-1", "FT-02"], ["301", "302"]
    refused = [
        (CORPUS, {"text": "a"}, ":3: 'id' is missing, or neither text"),
        (CORPUS, {"docid": [7], "text": "a"}, ":3: 'docid' is missing, or neither text"),
        (CORPUS, {"id": "7", "body": "a"}, ":3: 'contents' is missing or not a string"),
        (CORPUS, {"id": "7", "title": " ", "text": ""}, ":3: 'text' is empty"),
        (TOPICS, "<top>", ":3: 1 column, expected 2 between tabs: id, text"),
        (TOPICS, "303\t", ":3: 'text' is empty"),
        (TOPICS, "\ttext", ":3: id '' is empty"),
        (TOPICS, "303\ta\tb", ":3: 3 columns, expected 2"),
        (JUDGED, "302 Q0 FT-3 1 12.5 bm25", ":4: 6 columns, expected query, 0, document, grade"),
        (JUDGED, "302 0 FT-3 high", ":4: grade 'high' is not a whole number"),
        ("collection.more.tsv.gz", "FT-3\tmore", ":2: id 'FT-3' is already on line 1"),
        (TOPICS, "301\tother", ":3: id '301' has another text on an earlier line"),
        (JUDGED, "302 0 FT-2 1", ":4: 'FT-2' is not among the documents; 'FT-02' is: write"),
        (JUDGED, "302 0 FT-x 1", ":4: 'FT-x' is not among the documents$"),
        (JUDGED, "303 0 FT-3 1", ":4: '303' is not among the queries"),
        (JUDGED, "302 0 FT-3 0", ":4: its query and document have another score on an earlier line"),
        ({CORPUS: None, "collection.more.tsv.gz": None}, "no file is named corpus.jsonl or .tsv$"),
        ({TOPICS: None}, r"no file is named topics\.\*\.tsv$"),
        ({JUDGED: None, "qrels.tsv": None}, r"no file is named qrels\.\*$"),
    ]


class TestNamedFiles(TestTrec):  # and a named split
    given = ["collection.more.tsv.gz", CORPUS, TOPICS, f"test={JUDGED}"]
    found = {"test": TestTrec.found["robust"]}
    refused = [([CORPUS, TOPICS], r"no file is named qrels\.\*$")]
