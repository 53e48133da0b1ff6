"""MS MARCO: which files make which splits, for passages and documents."""

from pathlib import Path

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.ids import content_id
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.formats.contract import FormatContract, at
from tests.data_prep.collections.raw_formats import write_files

IDS, TOP, RUN = "qidpidtriples.train.small.tsv", "top1000.dev", "msmarco-docdev-top100"
PASSAGES = {
    "collection.tsv": '0\tThe fox is quick.\n1\tDogs "sleep".\n2\tThe fox is quick.\n3\tA brown hen\n',
    "queries.train.tsv": "10\twho is quick\n11\twho sleeps\n",
    "queries.dev.tsv": "20\twhat is brown\n21\twhere is the fox\n",
    "queries.dev.small.tsv": "20\twhat is brown\n",
    "queries.eval.tsv": "30\tunjudged\n",
    "qrels.train.tsv": "10\t0\t0\t1\n11\t0\t1\t1\n10\t0\t0\t1\n",
    "qrels.dev.tsv": "20\t0\t3\t1\n21\t0\t0\t1\n",
    "qrels.dev.small.tsv": "20\t0\t3\t1\n",
    IDS: "10\t0\t1\r\n11\t1\t3\r\n10\t2\t3\r\n10\t0\t2\r\n",
    TOP: '21\t1\twhere is the fox\tDogs "sleep".\n20\t3\twhat is brown\tA brown hen\n'
    "21\t3\twhere is the fox\tA brown hen\n30\t3\tunjudged\tA brown hen\n",
}
DOCUMENTS = {
    "msmarco-docs.tsv.gz": "D1\thttps://a\tFoxes\tThe fox is quick.\nD02\thttps://b\t.\t\nD3\thttps://c\t\t \n",
    "msmarco-docs-lookup.tsv": "D1\t5\t6\n",
    "top1000.dev.tar.gz": "",  # archives are passed over
    "msmarco-doctrain-queries.tsv": "1\twho is quick\n",
    "msmarco-docdev-queries.tsv": "2\twhat is it\n",
    "msmarco-doctrain-qrels.tsv": "1 0 D1 1\n",
    "msmarco-docdev-qrels.tsv": "2 0 D3 1\n",
    RUN: "2 Q0 D1 1 -5.1 IndriQL\n2 Q0 D3 2 -5.2 IndriQL\n",
}
HEADERS = {
    "collection.tsv": "pid\tpassage\n",
    "queries.train.tsv": "qid\tquery\n",
    "qrels.train.tsv": "qid\titer\tpid\trel\n",
    TOP: "qid\tpid\tquery\tpassage\n",
    IDS: "qid\tpid\tpid\n",
}
TRIPLES = {"triples.train.small.tsv": "who\tthe fox\ta dog\nwho\ta cat\tthe fox\nwhat\ta dog\ta dog \n"}
NONE_LISTED = "split top1000.dev: 1 of 2 queries have no relevant document (the first: 21)"
FOX, DOGS, HEN = "The fox is quick.", 'Dogs "sleep".', "A brown hen"


class TestTriples(FormatContract):
    name = "msmarco"
    files = TRIPLES
    given = ["."]
    found = {"train.small": [("who", {"the fox": 1, "a dog": 0, "a cat": 1}), ("what", {"a dog": 1})]}
    ids = [content_id(text) for text in ("the fox", "a dog", "a cat")], [content_id("who"), content_id("what")]
    refused = [
        (*TRIPLES, "who\tyes", ":4: 2 columns, expected 3 .*: query, positive, negative"),
        (*TRIPLES, "who\tyes\t", ":4: 'negative' is empty"),
        (*TRIPLES, " \tyes\tno", ":4: 'query' is empty"),
    ]


class TestDocuments(TestTriples):  # title and body, or else the URL
    ids = None
    files = DOCUMENTS
    found = {
        "train": [("who is quick", {"Foxes The fox is quick.": 1})],
        "dev": [("what is it", {"https://c": 1})],
        "dev-top100": [("what is it", {"Foxes The fox is quick.": 0, "https://c": 1})],
    }
    refused = [
        (RUN, "2 Q0 D1 1 2.5", ":3: 1 column, expected 4"),
        ("msmarco-docs-extra-queries.tsv", "D1\t\tt\tb", ":1: 4 columns, expected 2"),
        ("msmarco-docdev-qrels.tsv", "2 0 D2 1", ":2: 'D2' is not among the documents; 'D02' is"),
        ({"msmarco-docs.tsv.gz": "D1\t\t\t \n"}, "docs.tsv.gz:1: 'url, title and body' is empty"),
    ]


class TestPassages(TestTriples):
    ids = None
    files = {name: text for name, text in PASSAGES.items() if name != TOP}
    found = {
        "train": [("who is quick", {FOX: 1}), ("who sleeps", {DOGS: 1})],
        "dev": [("what is brown", {HEN: 1}), ("where is the fox", {FOX: 1})],
        "dev.small": [("what is brown", {HEN: 1})],
        "train.small": [("who is quick", {FOX: 1, DOGS: 0, HEN: 0}), ("who sleeps", {DOGS: 1, HEN: 0})],
    }
    remarks = ["split train: left out 1 judgements that occur before (the first: {folder}/qrels.train.tsv:3)"]
    refused = [
        ("collection.tsv", "4", ":5: 1 column, expected 2 between tabs: id, text"),
        ("collection.tsv", "4\ta\tb", ":5: 3 columns"),
        ("collection.tsv", "4\t ", ":5: 'text' is empty"),
        ("collection.tsv", "3\tmore", ":5: id '3' is already on line 4"),
        ("queries.dev.tsv", "20\tother", ":3: id '20' has another text on an earlier line"),
        ("qrels.dev.tsv", "20\t3\t1\t7\tx", ":3: 5 columns"),
        ("qrels.train.tsv", "10\t0\t0\t0", ":4: its query and document have another score"),
        ("qrels.dev.tsv", "20\t0\t3\t0", ":3: its query and document have another (grade|score)"),
        ("qrels.dev.tsv", "20\t0\t9\t1", ":3: '9' is not among the documents"),
        ("qrels.dev.tsv", "20\t0\t03\t1", ":3: '03' is not among the documents; '3' is: write"),
        ("qrels.dev.tsv", "9\t0\t3\t1", ":3: '9' is not among the queries"),
        (IDS, "10\t0", ":5: 2 columns, expected 3 .*: qid, positive pid"),
        (IDS, "10\t0\t9", ":5: '9' is not among the documents"),
        (TOP, "20\t1\twhat", ":1: 3 columns, expected 4"),
        ({TOP: PASSAGES[TOP] + "20\t9\twhat\tx\n"}, "top1000.dev:5: '9' is not among the documents"),
        ({TOP: PASSAGES[TOP], "qrels.dev.tsv": PASSAGES["qrels.dev.tsv"] + "20\t0\t3\t0\n"}, "v:3: .* another grade"),
    ]


class TestNamedFiles(TestPassages):  # must belong together
    files = PASSAGES | TRIPLES | {"msmarco-docs.tsv": "D1\tu\tt\tb\n", "top1000.dev.tar.gz": "", RUN: DOCUMENTS[RUN]}
    given = [name for name in PASSAGES if name != TOP]
    refused = [
        (["queries.dev.tsv", "qrels.dev.tsv"], r"none of collection.tsv, .* so no texts"),
        (["collection.tsv", "qrels.dev.tsv"], r"no queries\.\*\.tsv, so no queries"),
        (["collection.tsv", "queries.dev.tsv"], r"none of qrels\.\*\.tsv, .*, so no split"),
        ([TOP], r"top1000.dev: name the qrels that judge its queries too"),
        ([TOP, "qrels.train.tsv"], r"top1000.dev: no candidate is relevant by the qrels"),
        ([IDS, TOP, "qrels.dev.tsv"], r"small.tsv: name the collection of its"),
        (["collection.tsv", "msmarco-docs.tsv"], r"docs.tsv: .*collection.tsv is a collection already"),
        (["collection.tsv", *TRIPLES], r"triples.train.small.tsv: its texts have no ids, .*collection"),
        (["top1000.dev.tar.gz"], r"top1000.dev.tar.gz: it is not named as one .* \(a .tar must be unpacked"),
        ({"qrels.dev.tsv": "2 0 D3 1\n"}, [RUN, "qrels.dev.tsv"], "top100:1: a run has no texts: name the collection"),
    ]


class TestSplitOfSeveralFiles(TestTriples):  # where there are triples, grades may contradict each other
    ids = None
    files = {
        **{name: PASSAGES[name] for name in ("collection.tsv", "queries.train.tsv", IDS)},
        "qrels.train.tsv": "10\t0\t0\t1\n11\t0\t1\t1\n10\t0\t0\t0\n",
    }
    given = ["collection.tsv", "queries.train.tsv", f"mine={IDS}", "mine=qrels.train.tsv"]
    found = {"mine": TestPassages.found["train.small"]}
    refused = []


class TestExamples(TestTriples):
    ids = None
    files = {
        **{name: PASSAGES[name] for name in ("collection.tsv", "queries.train.tsv")},
        "examples.json": '["10", [0, 9.5], [1, -2], [3, 0.5]]\n[11, ["1", 7], ["3", "1e0"]]\n[10, [2, 4], [0, 11]]\n',
    }
    found = {"train": [("who is quick", {FOX: 1, DOGS: 0, HEN: 0}), ("who sleeps", {DOGS: 1, HEN: 0})]}
    scores = {"train": [9.5, -2, 0.5, 4, 7, 1]}  # of 0, that of the line where it is positive
    refused = [
        ("examples.json", "[10]", r":4: not JSON, or not \[qid, \[pid, score\], "),
        ("examples.json", "[10, 0, 1]", ":4: not JSON, or not"),
        ("examples.json", "[10, [0, 1]", ":4: not JSON, or not"),
        ("examples.json", '[10, [0, "x"]]', ":4: score 'x' is not a number"),
        ("examples.json", "[10, [9, 1]]", ":4: '9' is not among the documents"),
    ]


class TestHeaders(TestTriples):  # rows that name their columns are left out
    ids = None
    files = {name: HEADERS.get(name, "") + text for name, text in PASSAGES.items()}
    found = {
        **TestPassages.found,
        "top1000.dev": [("where is the fox", {DOGS: 0, HEN: 0}), ("what is brown", {HEN: 1})],
    }
    counts = (4, 5)
    remarks = [
        "split train: left out 1 judgements that occur before (the first: {folder}/qrels.train.tsv:4)",
        NONE_LISTED,
    ]
    refused = []


class TestCandidatesAlone(TestTriples):  # bring their texts
    files = {name: PASSAGES[name] for name in (TOP, "qrels.dev.tsv")}
    found = {"top1000.dev": TestHeaders.found["top1000.dev"]}
    ids = ["1", "3"], ["21", "20", "30"]
    remarks = [NONE_LISTED]
    refused = []


def test_what_another_file_of_a_split_lists_is_among_the_candidates(tmp_path: Path, small: Tokenizer) -> None:
    first, second = "21\t1\twhere\tDogs\n20\t3\twhat\tA hen\n", "21\t0\twhere\tThe fox\n"
    files = {**PASSAGES, "top1000.a": first, "top1000.b": second, TOP: first + second}
    folder = write_files(tmp_path / "in", files)
    texts = ("collection.tsv", "queries.dev.tsv", "qrels.dev.tsv")
    inputs = [at(folder, name) for name in (*texts, "two=top1000.a", "two=top1000.b", f"one={TOP}")]
    opened = build("msmarco", inputs, tmp_path / "out", small)
    for split in ("one", "two"):
        assert opened.qrels(split) == {"21": {"1": 0, "0": 1}, "20": {"3": 1}}
