import bz2
import re
from pathlib import Path

import pytest

from data_prep.prepare import dry_run, run
from data_prep.sources import compressed
from tests.data_prep import raw

Capture = pytest.CaptureFixture[str]


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


def test_remote_files_are_not_read(tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.inputs, "local", None)
    text = printed(capfd, "jsonl", "https://example.org/a.jsonl", "--out", tmp_path / "out")
    assert text == "1 remote files would be downloaded first, and are not counted\n"
