"""The beginning of the input alone: tried with --dry-run, used with --limit, or the sound part of a truncated file."""

import bz2
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from deepsiam.data_prep.prepare import dry_run, run
from deepsiam.data_prep.sources import compressed
from tests.data_prep import raw
from tests.data_prep.raw import contents, source_of

Capture = pytest.CaptureFixture[str]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": lambda content: bz2.compress(content, 1),
    ".gz": gzip.compress,
    "": bytes,
}


def printed(capfd: Capture, *command: object, workers: int = 2) -> str:
    capfd.readouterr()
    raw.run(*map(str, command), "--dry-run", workers=workers)
    return capfd.readouterr().out


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize("suffix", ["", ".bz2"])
def test_the_beginning_tells_the_size_of_the_whole(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(dry_run, "SAMPLE", 100_000)
    monkeypatch.setattr(compressed, "PIECE", 1 << 14)  # read-ahead of a plain file counts as read
    dump = raw.write_wikipedia(tmp_path / "pages.xml", raw.texts(2000, sentences=6)).read_bytes()
    file = tmp_path / f"pages-articles.xml{suffix}"
    file.write_bytes(bz2.compress(dump, 1) if suffix else dump)
    text = printed(capfd, "wikipedia", file, "--out", tmp_path / "out")
    records = number(r"tried with the first ([\d,]+) records", text)
    assert 100 < records < 600
    assert number(r"all of it, ([\d,]+) records", text) == pytest.approx(2000, rel=0.6)
    assert number(r"about ([\d,]+) documents", text) == pytest.approx(2000, rel=0.6)
    assert "training a vocabulary" in text
    assert "of shards" in text
    assert not (tmp_path / "out").exists()


def test_a_small_input_is_tried_whole(tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", [*raw.texts(50), "Tiny."])
    clock = iter(range(0, 10_000, 60))
    monkeypatch.setattr(dry_run.time, "perf_counter", lambda: float(next(clock)))  # a minute for each pass
    vocabulary = raw.vocabulary(tmp_path / "tokenizer.json")
    given = "jsonl", file, "--out", tmp_path / "out", "--min-words", 2, "--tokenizer", vocabulary
    lines = printed(capfd, *given).splitlines()
    assert lines[0].startswith("files: 1, 0.0 MB; tried with the first 51 records:")
    assert re.fullmatch(r"  length +51 +50  1 too_short", lines[5])
    assert "all of it, 51 records, with --workers 2:" in lines
    assert "  about 60 s: reading 30 s, tokenising and writing 30 s" in lines
    assert any(line.startswith("  about 50 documents, ") for line in lines)
    text = printed(capfd, *given[:4], "--text-only", workers=1)
    assert "  about 60 s: reading 60 s\n" in text
    assert "shards" not in text


def test_a_limit_is_the_whole(tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(50))
    text = printed(capfd, "jsonl", file, "--out", tmp_path / "out", "--limit", 20)
    assert "all of it, 20 records" in text
    assert "about 20 documents" in text


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_sample_is_spread_over_the_files(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(dry_run, "SAMPLE", 100_000)
    monkeypatch.setattr(compressed, "PIECE", 1 << 13)
    monkeypatch.setattr(compressed, "STEP", 1 << 12)
    raw.write_reddit(tmp_path / "dumps", [raw.texts(6, number) for number in range(300)], files=2)
    for file in list((tmp_path / "dumps").iterdir()):
        content = file.read_bytes()
        file.unlink()
        Path(f"{file}{suffix}").write_bytes(COMPRESS[suffix](content))
    text = printed(capfd, "reddit", tmp_path / "dumps", "--out", tmp_path / "out")
    assert number(r"of (\d) files", text) == len(list((tmp_path / "dumps").iterdir())) > 2
    records = number(r"tried with the first ([\d,]+) records", text)
    assert records < 900
    assert number(r"all of it, ([\d,]+) records", text) == pytest.approx(1800, rel=0.3)


def test_small_files_make_up_the_sample_together(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "SAMPLE", 10_000)
    for name, text in enumerate(raw.texts(200, sentences=6)):
        (tmp_path / f"{name}.txt").write_text(text)
    text = printed(capfd, "text", tmp_path, "--out", tmp_path / "out")
    records = number(r"tried with the first ([\d,]+) records", text)
    assert 10 < records == number(r"of (\d+) files", text) < 100
    assert number(r"all of it, ([\d,]+) records", text) == pytest.approx(200, rel=0.2)


def test_a_trial_accepts_a_truncated_file_only_where_the_preparation_would(tmp_path: Path, capfd: Capture) -> None:
    content = gzip.compress(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in raw.texts(400)))
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(content[: len(content) // 2])
    wanted = "jsonl", file, "--out", tmp_path / "out", "--dry-run"
    message = raw.refusal(capfd, *wanted)
    assert message.endswith("or use what is before that with --accept-truncated")
    assert 100 < number(r"about ([\d,]+) documents", printed(capfd, *wanted[:-1], "--accept-truncated")) < 300


def test_a_trial_that_keeps_nothing_says_so(tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", ["Tiny."])
    message = raw.refusal(capfd, "jsonl", file, "--out", tmp_path / "out", "--min-words", 9, "--dry-run")
    assert message == "the records that were tried: no documents are left to write (1 too_short)"


def test_remote_files_are_not_read(tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.inputs, "local", None)
    text = printed(capfd, "jsonl", "https://example.org/a.jsonl", "--out", tmp_path / "out")
    assert text == "1 remote files would be downloaded first, and are not counted\n"


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
