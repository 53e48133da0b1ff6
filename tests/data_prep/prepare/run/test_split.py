"""The two sides of --held-out share no group and no sentence, in one run and in parts that are merged."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.prepare import output, reading
from deepsiam.data_prep.sources import bookcorpus
from tests.data_prep import raw

SHARE = 0.4
NEAR = ["--near-duplicates", 0.6]


@pytest.fixture(params=["", "keep", "near", "near keep"])
def removal(request: pytest.FixtureRequest) -> list[object]:
    """Return the options that decide which duplicates are removed, whatever the source."""
    if "near" in request.param:
        request.getfixturevalue("datasketch")
    return (NEAR if "near" in request.param else []) + (["--keep-duplicates"] if "keep" in request.param else [])


def exported(out: Path, split: str) -> list[dict[str, Any]]:
    file = out / f"{split}.jsonl"
    assert main(["export", str(out / split), "--jsonl", "--out", str(file)]) == 0
    documents = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    return documents


def shared(out: Path) -> tuple[set[str], set[str]]:
    """Return the groups and the sentences that are on both sides."""
    sides = [exported(out, split) for split in output.SPLITS]
    assert all(len(documents) > 5 for documents in sides)
    groups = [{document["group"] for document in documents} for documents in sides]
    sentences = [{sentence for document in documents for sentence in document["text"]} for documents in sides]
    return groups[0] & groups[1], sentences[0] & sentences[1]


def unique_sentences() -> Iterator[str]:
    sentences = raw.texts(2000, sentences=1)
    assert len(set(sentences)) == len(sentences)
    return iter(sentences)


def reworded(text: str) -> str:
    """A near-duplicate of the same length in bytes, so that a long text is cut at the same places."""
    words = text.split(" ")
    return " ".join([words[0], "x" * len(words[1]), *words[2:]])


def check(folder: Path, source: str, *arguments: object) -> None:
    tok = raw.vocabulary(folder / "tokenizer.json")
    out = raw.agree(folder, source, *arguments, "--tokenizer", tok, "--held-out", SHARE, numbers=[3])
    assert shared(out) == (set(), set())
    dropped = raw.source_of(out)["counts"]["dropped"]
    assert ("near_duplicate" in dropped) == ("--near-duplicates" in arguments)
    assert dropped["same_text"] > 2


def write_threads(folder: Path, threads: Sequence[Sequence[str]]) -> Path:
    """Write dumps of threads: a submission, a chain of comments and, last, a second reply to the first comment."""
    raw.write_reddit(folder, [thread[:-1] for thread in threads])
    branches = [
        {"id": f"b{number}", "link_id": f"t3_p{number}", "parent_id": f"t1_c{number}x1", "body": thread[-1]}
        for number, thread in enumerate(threads)
    ]
    raw.write_jsonl(folder / "RC_2020-09", [{**branch, "author": "u", "created_utc": 9} for branch in branches])
    return folder


def test_threads_are_on_one_side(tmp_path: Path, removal: list[object]) -> None:
    some = unique_sentences()
    threads = [[next(some) for _ in range(6)] for _ in range(40)]
    copies = threads[:12]
    chains = [[next(some) for _ in range(6)] for _ in range(12)]
    if "--near-duplicates" in removal:
        chains += [[reworded(chain[0]), *chain[1:]] for chain in chains]
    dumps = [
        write_threads(tmp_path / "branched", threads + copies),
        raw.write_reddit(tmp_path / "chains", chains, first=100),  # without a branch: one document each
    ]
    check(tmp_path, "reddit", *dumps, "--any-language", *removal)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, write: Callable[[Path, list[str]], Path]
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 600)
    monkeypatch.setattr(bookcorpus, "LINES", 1)
    some = unique_sentences()
    texts = [" ".join(next(some) for _ in range(20)) for _ in range(30)]
    texts += [*texts[:8], *map(reworded, texts[8:20])]
    check(tmp_path, source, write(tmp_path, texts), *NEAR)
    ids = {document["id"] for split in output.SPLITS for document in exported(tmp_path / "whole", split)}
    assert sum("#" in id_ for id_ in ids) == 30  # each document is cut in two


def test_a_held_out_copy_of_training_text_is_dropped_and_counted_once(tmp_path: Path) -> None:
    texts = raw.texts(40)
    file = raw.write_jsonl(tmp_path / "a.jsonl", texts * 3)
    for keep in ([], ["--keep-duplicates"]):
        out = tmp_path / f"out {len(keep)}"
        raw.run("jsonl", file, "--out", out, "--held-out", SHARE, *keep)
        sides = [raw.documents(out, split) for split in output.SPLITS]
        keys = [{document.key for document in documents} for documents in sides]
        assert not keys[0] & keys[1]
        assert len(keys[0] | keys[1]) == 40
        counts = raw.source_of(out)["counts"]
        assert counts["dropped"] == {"same_text": 120 - sum(map(len, sides))}
        assert raw.source_of(out)["stages"][-1]["out"] == sum(map(len, sides))


def test_all_groups_held_out_is_one_clear_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(1))
    message = raw.refusal(capfd, "jsonl", file, "--out", tmp_path / "out", "--held-out", 0.5)
    hint = "all may be in held-out groups: lower --held-out"
    assert message.endswith(f"no documents are left to write (the input has none); {hint}")
