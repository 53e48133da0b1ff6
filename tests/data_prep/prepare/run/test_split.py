"""The two sides of --held-out share no group and no sentence, in one run and in parts that are merged."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.prepare import output, reading
from deepsiam.data_prep.sources import bookcorpus
from tests.data_prep import raw

SHARE = 0.4
NEAR = ["--near-duplicates", 0.6]


def exported(out: Path, split: str) -> list[dict[str, Any]]:
    file = out / f"{split}.jsonl"
    assert main(["export", str(out / split), "--jsonl", "--out", str(file)]) == 0
    documents = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    return documents


def check(out: Path, is_near: bool) -> None:
    """Check that no group and no sentence is on both sides, and that duplicates were removed."""
    sides = [exported(out, split) for split in output.SPLITS]
    assert min(map(len, sides)) > 5
    groups = [{document["group"] for document in documents} for documents in sides]
    sentences = [{sentence for document in documents for sentence in document["text"]} for documents in sides]
    assert (groups[0] & groups[1], sentences[0] & sentences[1]) == (set(), set())
    dropped = raw.source_of(out)["counts"]["dropped"]
    assert ("near_duplicate" in dropped) == is_near
    assert dropped["same_text"] > 2


def unique_sentences() -> Iterator[str]:
    sentences = raw.texts(2000, sentences=1)
    assert len(set(sentences)) == len(sentences)
    return iter(sentences)


def reworded(text: str) -> str:
    """A near-duplicate of the same length in bytes, so that a long text is cut at the same places."""
    words = text.split(" ")
    return " ".join([words[0], "x" * len(words[1]), *words[2:]])


@pytest.mark.usefixtures("datasketch")
@pytest.mark.parametrize("removal", [NEAR, ["--keep-duplicates"]], ids=["near", "keep"])
def test_threads_are_on_one_side_of_every_part(tok: Path, tmp_path: Path, removal: list[object]) -> None:
    """A branched thread has a submission, a chain of comments and a second reply to the first comment."""
    some = unique_sentences()
    threads = [list(islice(some, 6)) for _ in range(40)]
    threads += threads[:12]
    branched = raw.write_reddit(tmp_path / "branched", [thread[:-1] for thread in threads])
    branches = [
        {"id": f"b{n}", "link_id": f"t3_p{n}", "parent_id": f"t1_c{n}x1", "body": thread[-1]}
        for n, thread in enumerate(threads)
    ]
    raw.write_jsonl(branched / "RC_2020-09", [{**branch, "author": "u", "created_utc": 9} for branch in branches])
    chains = [list(islice(some, 6)) for _ in range(12)]
    if removal == NEAR:
        chains += [[reworded(chain[0]), *chain[1:]] for chain in chains]
    dumps = [branched, raw.write_reddit(tmp_path / "chains", chains, first=100)]  # of a chain: one document
    wanted = ["--tokenizer", tok, "--held-out", SHARE, "--any-language", *removal]
    check(raw.agree(tmp_path, "reddit", *dumps, *wanted, numbers=[2]), removal == NEAR)


def wikipedia(folder: Path, texts: list[str]) -> Path:
    (folder / "dumps").mkdir()
    raw.write_wikipedia(folder / "dumps" / "pages-articles1.xml", texts[:20])
    raw.write_wikipedia(folder / "dumps" / "pages-articles2.xml", texts[20:], first=21)
    return folder / "dumps"


def jsonl(folder: Path, texts: list[str]) -> Path:
    return raw.write_jsonl(folder / "a.jsonl", texts)


def sentence_files(folder: Path, texts: list[str]) -> Path:
    (folder / "books_large_p1.txt").write_text("".join(f"{text}\n" for text in texts))
    return folder / "books_large_p1.txt"


def books(folder: Path, texts: list[str]) -> Path:
    (folder / "books").mkdir()
    for number, text in enumerate(texts):
        (folder / "books" / f"{number}.txt").write_text(text)
    return folder / "books"


def cleaned(folder: Path, texts: list[str]) -> Path:
    raw.run("jsonl", jsonl(folder, texts), "--out", folder / "text first", "--text-only", "--keep-duplicates")
    return folder / "text first"


@pytest.mark.usefixtures("datasketch")
@pytest.mark.parametrize(
    ("source", "write"),
    [
        ("wikipedia", wikipedia),
        ("jsonl", jsonl),
        ("bookcorpus", books),
        ("bookcorpus-sentences", sentence_files),
        ("cleaned", cleaned),
    ],
)
def test_documents_of_every_source_are_on_one_side(
    tok: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, write: Callable[[Path, list[str]], Path]
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 600)
    monkeypatch.setattr(bookcorpus, "LINES", 1)
    some = unique_sentences()
    texts = [" ".join(islice(some, 20)) for _ in range(30)]
    texts += [*texts[:8], *map(reworded, texts[8:20])]
    wanted = ["--tokenizer", tok, "--held-out", SHARE, *NEAR]
    out = raw.agree(tmp_path, source, write(tmp_path, texts), *wanted, numbers=[2] if source == "jsonl" else [])
    check(out, True)
    groups = {document["id"]: document["group"] for split in output.SPLITS for document in exported(out, split)}
    assert sum("#" in name for name in groups) == 30  # each document is cut in two
    assert all(group == name.partition("#")[0] for name, group in groups.items())
