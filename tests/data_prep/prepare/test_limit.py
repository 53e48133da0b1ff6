"""The beginning of the input alone: with --limit, or the sound part of a truncated file."""

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data_prep import raw
from tests.data_prep.raw import contents, source_of

Capture = pytest.CaptureFixture[str]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": lambda content: bz2.compress(content, 1),
    ".gz": gzip.compress,
    "": bytes,
}


def names(out: Path) -> set[str]:
    return {document.id for document in raw.documents(out)}


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_records_of_the_files_are_read_and_no_more(tmp_path: Path, workers: int) -> None:
    texts = raw.texts(40)
    files = [
        raw.write_jsonl(tmp_path / "a.jsonl", texts[:15]),
        raw.write_jsonl(tmp_path / "b.jsonl", texts[15:30]),
        tmp_path / "c.jsonl.gz",
    ]
    damaged = gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in texts[30:]).encode())
    files[2].write_bytes(damaged[:-20])
    raw.run("jsonl", *files, "--out", tmp_path / "out", "--limit", 20, workers=workers)
    ids = [f"jsonl/a.jsonl/{n}" for n in range(1, 16)] + [f"jsonl/b.jsonl/{n}" for n in range(1, 6)]
    assert names(tmp_path / "out") == set(ids)
    source = source_of(tmp_path / "out")
    assert source["options"]["limit"] == 20
    assert [file["sha256"] for file in source["inputs"]["files"]] == [None] * 3  # the files were not read


def test_parts_of_a_trial_make_the_whole_of_it(tmp_path: Path) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(60))
    whole = raw.agree(
        tmp_path, "jsonl", file, "--limit", 41, "--tokenizer", raw.vocabulary(tmp_path / "tokenizer.json")
    )
    assert len(raw.documents(whole)) == 41


@pytest.mark.parametrize(("suffix", "workers"), [("", 1), (".bz2", 1), (".gz", 3)])
def test_what_is_sound_of_a_truncated_file_is_used(tmp_path: Path, capfd: Capture, suffix: str, workers: int) -> None:
    dump = raw.write_wikipedia(tmp_path / "whole.xml", raw.texts(300, sentences=40)).read_bytes()
    file = tmp_path / f"pages-articles.xml{suffix}"
    content = COMPRESS[suffix](dump)
    file.write_bytes(content[: len(content) * 2 // 3])
    other = raw.write_wikipedia(tmp_path / "z-pages-articles.xml", raw.texts(5, 1), first=1000)
    message = raw.refusal(capfd, "wikipedia", file, other, "--out", tmp_path / "refused", workers=workers)
    assert message.startswith(f"{file}: ")
    assert message.endswith("or use what is before that with --accept-truncated")
    assert f"cut off at byte {file.stat().st_size:,}" in message
    raw.run("wikipedia", file, other, "--out", tmp_path / "out", "--accept-truncated", workers=workers)
    sound = len(names(tmp_path / "out")) - 5
    assert 150 <= sound < 300
    assert names(tmp_path / "out") == {f"wikipedia/{n}" for n in (*range(1, sound + 1), *range(1000, 1005))}
    assert source_of(tmp_path / "out")["cut_off"] == {f"wikipedia/{file.name}": sound}
    assert f"wikipedia/{file.name} is cut off: the {sound} records before that are used" in capfd.readouterr().err
    before = contents(tmp_path / "out")
    raw.run("wikipedia", file, other, "--out", tmp_path / "out", "--accept-truncated")  # complete already
    assert contents(tmp_path / "out") == before


def test_no_sound_page_is_lost(tmp_path: Path) -> None:
    dump = raw.write_wikipedia(tmp_path / "whole.xml", raw.texts(300)).read_bytes()
    content = gzip.compress(dump, 0)  # stored, not compressed: a byte of the file is a byte of the dump
    cut = content.index(b"<id>201</id>")
    file = tmp_path / "pages-articles.xml.gz"
    file.write_bytes(content[:cut])
    raw.run("wikipedia", file, "--out", tmp_path / "out", "--accept-truncated")
    assert names(tmp_path / "out") == {f"wikipedia/{number}" for number in range(1, 201)}
