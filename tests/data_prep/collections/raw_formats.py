"""Write small files in the published formats. Lists are queries with labelled candidates, as `choices` returns them."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

Lists = Sequence[tuple[str, Mapping[str, float]]]

WIKIQA = ["QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label"]
PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
MNLI = ["index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2", "label1", "gold_label"]
QQP = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
RTE = ["index", "sentence1", "sentence2", "label"]
SICK = ["pair_ID", "sentence_A", "sentence_B", "entailment_label", "relatedness_score", "SemEval_set"]


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files by name, compressed where the name ends in .gz."""
    for name, content in files.items():
        data = content.encode(errors="surrogateescape")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def write_lines(file: Path, found: Iterable[Any], line_end: str = "\n") -> Path:
    """Write one item per line: texts as they are, anything else as JSON."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in found)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(text + line_end for text in texts).encode())
    return file


def write_tsv(file: Path, rows: Iterable[Sequence[object]], line_end: str = "\n") -> Path:
    """Write tab-separated rows."""
    return write_lines(file, ("\t".join(map(str, row)) for row in rows), line_end)


def write_csv(file: Path, rows: Iterable[Sequence[object]], line_end: str = "\n") -> Path:
    """Write comma-separated rows, quoted where necessary."""
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows(rows)
    file.write_bytes(text.getvalue().encode())
    return file


def dpr_passage(text: str, title: str | None = "Fox") -> dict[str, Any]:
    """A passage of DPR's JSON."""
    return {"title": title, "text": text, "score": 12.5, "title_score": 0, "passage_id": "7"}


def write_mind(folder: Path, behaviors: Iterable[str], news: Mapping[str, tuple[str, str]], entities: int = 2) -> Path:
    """Write the two tables: lines of behaviors, and the title and abstract of each piece of news."""
    write_lines(folder / "behaviors.tsv", behaviors)
    rest = ["https://example.org/a", *["[]"] * entities]
    write_tsv(folder / "news.tsv", ([name, "sports", "golf", *texts, *rest] for name, texts in news.items()))
    return folder


def dstc7_option(number: int, text: str) -> dict[str, str]:
    """A candidate."""
    return {"candidate-id": f"ID{number:010}", "utterance": text}


def dstc7_item(number: int, said: Iterable[tuple[int, str]], options: Sequence[str], right: str) -> dict[str, Any]:
    """An element of an array: messages, each with the number of its speaker, and candidates."""
    return {
        "data-split": "train",
        "example-id": number,
        "messages-so-far": [{"speaker": f"participant_{who}", "utterance": text} for who, text in said],
        "options-for-correct-answers": [dstc7_option(options.index(right) if right in options else 10**6, right)],
        "options-for-next": [dstc7_option(i, text) for i, text in enumerate(options)],
        "scenario": 1,
    }


def mnli(first: str, second: str, label: str) -> list[str]:
    """A row with the columns MNLI."""
    return ["0", "1", "1e", "fiction", "( x )", "( y )", "(ROOT x)", "(ROOT y)", first, second, label, label]


def trecqa(lists: Lists) -> list[str]:
    """Return lines of questions and passages as tab-separated words, each followed by lines of annotations."""
    found = []
    for number, (question, labels) in enumerate(lists):
        found += [f"<QApairs id='{number}'>", "<question>", "\t".join(question.split()), "WP\tVBZ\t.", "</question>"]
        for text, label in labels.items():
            tag = "positive" if label else "negative"
            found += [f"<{tag}>", "\t".join(text.split()), "DT\tNN\tVBZ\t.", "1\t2\t0\t3", f"</{tag}>"]
        found.append("</QApairs>")
    return found


def write_wikiqa(file: Path, lists: Lists) -> Path:
    """Write a table with the columns WIKIQA."""
    rows = [
        [f"Q{number}", question, "D1", "Fox", "D1-0", text, int(label)]
        for number, (question, labels) in enumerate(lists)
        for text, label in labels.items()
    ]
    return write_tsv(file, [WIKIQA, *rows], "\r\n")


def write_parquet(file: Path, rows: list[dict[str, Any]], **how: Any) -> Path:
    """Write rows, or skip the test where the package for it is missing."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs the packages of the extra `dumps`")
    file.parent.mkdir(parents=True, exist_ok=True)
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), file, **how)
    return file
