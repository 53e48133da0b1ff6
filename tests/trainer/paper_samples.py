"""Small samples in the published formats that the recipes of the papers are trained on: a writer for each."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests import toy

QUERIES = 20  # of a training split; half as many of others
SAID = [" ".join(sentences) for sentences in toy.documents(40 * QUERIES, seed=7)]
CLASSES = ("entailment", "neutral", "contradiction")


def said(number: int) -> str:
    """A text, different for every number."""
    return f"{SAID[number % len(SAID)]} {number}"


def lines(file: Path, rows: Iterable[Any], separator: str = "\t") -> Path:
    """Write rows: objects as JSON, or cells."""
    texts = (json.dumps(row) if isinstance(row, dict) else separator.join(map(str, row)) for row in rows)
    file.write_text("".join(f"{text}\n" for text in texts))
    return file


def msmarco(folder: Path) -> list[str]:
    """Passages, queries of training and their triples of ids, all positives once: the SEED warm-up's files."""
    lines(folder / "collection.tsv", ((i, said(i)) for i in range(60)))
    lines(folder / "queries.train.tsv", ((100 + i, said(i)[:20]) for i in range(QUERIES)))
    lines(folder / "qidpidtriples.train.full.2.tsv", ((100 + i, i, 59 - i - n) for i in range(QUERIES) for n in (0, 1)))
    lines(folder / "queries.dev.tsv", ((200 + i, said(i + 20)[:20]) for i in range(10)))
    lines(folder / "qrels.dev.tsv", ((200 + i, 0, i + 20, 1) for i in range(10)))
    triples = f"train={folder / 'qidpidtriples.train.full.2.tsv'}"
    names = ("collection.tsv", "queries.train.tsv", "queries.dev.tsv", "qrels.dev.tsv")
    return [triples, *(str(folder / name) for name in names)]


def msmarco_documents(folder: Path) -> list[str]:
    """Documents with url, title and body, and triples of their ids."""
    body = " ".join(map(said, range(60)))  # longer than a chunk
    lines(folder / "msmarco-docs.tsv", ((f"D{i}", "https://a", said(i), body) for i in range(60)))
    lines(folder / "msmarco-doctrain-queries.tsv", ((100 + i, said(i)[:20]) for i in range(QUERIES)))
    lines(folder / "qidpidtriples.train.tsv", ((100 + i, f"D{i}", f"D{59 - i}") for i in range(QUERIES)))
    lines(folder / "msmarco-docdev-queries.tsv", ((200 + i, said(i + 20)[:20]) for i in range(10)))
    lines(folder / "msmarco-docdev-qrels.tsv", ((200 + i, 0, f"D{i + 20}", 1) for i in range(10)))
    return [str(folder)]


def mind(folder: Path) -> list[str]:
    """The folders of training and development: impressions of one click among five news."""
    inputs = []
    for split, users in (("train", QUERIES), ("dev", 10)):
        inner = folder / f"MINDlarge_{split}"
        inner.mkdir()
        news = ((f"N{i}", "sports", "golf", said(i), said(i + 1), "https://a", "[]", "[]") for i in range(80))
        lines(inner / "news.tsv", news)
        rows = []
        for user in range(users):
            shown = " ".join(f"N{user + 20 + i}-{int(i == 2)}" for i in range(5))
            rows.append((user, f"U{user}", "11/15/2019 10:22:32 AM", f"N{user} N{user + 1} N{user + 2}", shown))
        lines(inner / "behaviors.tsv", rows)
        inputs.append(str(inner))
    return inputs


def dpr(folder: Path) -> list[str]:
    """Questions with a positive, hard negatives and others."""

    def record(i: int) -> dict[str, Any]:
        def passages(*numbers: int) -> list[dict[str, str]]:
            return [{"title": "Fox", "text": said(number)} for number in numbers]

        contexts = {"positive_ctxs": passages(i), "hard_negative_ctxs": passages(i + 100, i + 101)}
        return {"question": said(i)[:20], "answers": ["a"], **contexts, "negative_ctxs": passages(i + 200)}

    files = {"train": range(QUERIES), "dev": range(QUERIES, QUERIES + 10)}
    return [
        str(json_file(folder / f"biencoder-nq-{split}.json", list(map(record, numbers))))
        for split, numbers in files.items()
    ]


def json_file(file: Path, content: Any) -> Path:
    """Write JSON."""
    file.write_text(json.dumps(content))
    return file


def convai2(folder: Path) -> list[str]:
    """Personas, turns and twenty candidates, the reply last."""
    inputs = []
    for split, dialogues in (("train", QUERIES), ("valid", 10)):
        rows = []
        for i in range(dialogues):
            candidates = "|".join([*(said(300 + 20 * i + n) for n in range(19)), said(i)])
            rows += [f"1 your persona: {said(i + 50)}", f"2 {said(i + 80)}\t{said(i)}\t\t{candidates}"]
        (folder / f"{split}_self_original.txt").write_text("\n".join(rows) + "\n")
        inputs.append(str(folder / f"{split}_self_original.txt"))
    return inputs


def dstc7(folder: Path) -> list[str]:
    """Messages, a hundred options and the right one."""

    def option(number: int) -> dict[str, str]:
        return {"candidate-id": f"ID{number:010}", "utterance": said(number)}

    def example(i: int) -> dict[str, Any]:
        messages = [{"speaker": f"participant_{turn % 2}", "utterance": said(i + 40 * turn)} for turn in range(3)]
        options = [option(n) for n in range(100)]
        return {
            "example-id": i,
            "messages-so-far": messages,
            "options-for-correct-answers": [option(i)],
            "options-for-next": options,
        }

    files = {"train": range(QUERIES), "dev": range(10)}
    return [
        str(json_file(folder / f"ubuntu_{split}_subtask_1.json", list(map(example, numbers))))
        for split, numbers in files.items()
    ]


def ubuntu(folder: Path) -> list[str]:
    """Pairs of training with a label, ten candidates of validation."""

    def context(i: int) -> str:
        return f"{said(i)} __eou__ __eot__ {said(i + 1)} __eou__ __eot__"

    wrong = [f"Distractor_{n}" for n in range(9)]
    pairs = [[context(i), f"{said(i + 100)} __eou__", "1"] for i in range(QUERIES)]
    lists = [[context(i), *(said(i + 100 + 20 * n) for n in range(10))] for i in range(10)]
    train = csv_file(folder / "train.csv", ["Context", "Utterance", "Label"], pairs)
    valid = csv_file(folder / "valid.csv", ["Context", "Ground Truth Utterance", *wrong], lists)
    return [str(train), str(valid)]


def csv_file(file: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    """Write a table."""
    with open(file, "w", newline="") as out:
        csv.writer(out).writerows([header, *rows])
    return file


def wikipedia(folder: Path) -> list[str]:
    """WikiExtractor's articles: of a few hundred, some are of the splits dev and test."""
    texts = ([said(4 * i + n).capitalize() + "." for n in range(4)] for i in range(300))
    rows = [{"id": str(i), "title": f"T{i}", "text": " ".join(text)} for i, text in enumerate(texts)]
    return [str(lines(folder / "wiki_00", rows))]


def hotpot(folder: Path) -> list[str]:
    """HotpotQA's questions, each with one paragraph of supporting facts among twenty-two."""

    def record(i: int) -> dict[str, Any]:
        context = [[f"T{i}x{n}", [said(30 * i + n)]] for n in range(22)]
        return {"_id": str(i), "question": said(30 * i)[:30], "supporting_facts": [[f"T{i}x0", 0]], "context": context}

    files = {"train": range(QUERIES), "dev": range(10)}
    return [
        str(json_file(folder / f"hotpot_{split}_distractor_v1.json", list(map(record, numbers))))
        for split, numbers in files.items()
    ]


def quasar(folder: Path) -> list[str]:
    """Quasar-T's pair of files: questions with answers, and their contexts, of which some have the answer."""
    inputs = []
    for split, number in (("train", QUERIES), ("dev", 10)):
        questions = ({"uid": f"q{i}", "question": said(i), "answer": f"answer{i}"} for i in range(number))
        found = [
            [[0.5, f"{said(30 * i + n)}" + (f" answer{i}" if n == 3 else "")] for n in range(22)] for i in range(number)
        ]
        contexts = ({"uid": f"q{i}", "contexts": texts} for i, texts in enumerate(found))
        inputs.append(str(lines(folder / f"{split}_questions.json", questions)))
        inputs.append(str(lines(folder / f"{split}_contexts.json", contexts)))
    return inputs


def mnli(folder: Path) -> list[str]:
    """MNLI as GLUE has it."""
    header = ("index", "sentence1", "sentence2", "gold_label")
    files = {"train": 2 * QUERIES, "dev": 12}
    return [
        str(lines(folder / f"{split}.tsv", [header, *((i, said(i), said(2 * i), CLASSES[i % 3]) for i in range(n))]))
        for split, n in files.items()
    ]


def qqp(folder: Path) -> list[str]:
    """Quora's question pairs."""
    header = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    files = {"train": 2 * QUERIES, "dev": 12}
    return [
        str(lines(folder / f"{split}.tsv", [header, *((i, i, i, said(i), said(2 * i), i % 2) for i in range(n))]))
        for split, n in files.items()
    ]


def beir(folder: Path) -> list[str]:
    """A folder in BEIR's layout."""
    (folder / "qrels").mkdir()
    lines(folder / "corpus.jsonl", ({"_id": f"d{i}", "title": "", "text": said(i)} for i in range(60)))
    lines(folder / "queries.jsonl", ({"_id": f"q{i}", "text": said(i)[:20]} for i in range(40)))
    for split, numbers in (("train", range(QUERIES)), ("dev", range(QUERIES, 40))):
        rows = [("query-id", "corpus-id", "score"), *((f"q{i}", f"d{i}", 1) for i in numbers)]
        lines(folder / "qrels" / f"{split}.tsv", rows)
    return [str(folder)]


Writer = Callable[[Path], list[str]]  # writes into a folder; returns the command's inputs
