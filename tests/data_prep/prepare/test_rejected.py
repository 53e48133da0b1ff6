"""--rejected lists every document that is left out, with its reason, for any number of workers or interruptions."""

import errno
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import rejected, writing
from tests.data_prep import raw
from tests.data_prep.raw import contents, refusal, source_of

Capture = pytest.CaptureFixture[str]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def texts_file(folder: Path) -> Path:
    some = raw.texts(30)
    return raw.write_jsonl(folder / "a.jsonl", [*some, some[3].upper(), "Two words.", " ", some[4], "Tiny."])


OPTIONS = ["--min-words", 5, "--max-bad", 0.5]


@pytest.mark.parametrize(("workers", "text_only"), [(3, []), (1, ["--text-only"])], ids=["shards", "text"])
def test_all_that_is_left_out_is_written_with_its_reason(tmp_path: Path, workers: int, text_only: list[str]) -> None:
    file = texts_file(tmp_path)
    with open(file, "a") as more:
        more.write("not JSON\n")
    given = "jsonl", file, *OPTIONS, *text_only
    raw.run(*given, "--out", tmp_path / "out", "--rejected", tmp_path / "no.jsonl", workers=workers)
    found = lines(tmp_path / "no.jsonl")
    place = [(line["stage"], line["reason"], (line.get("where") or line["id"]).split(" (")[0]) for line in found]
    assert [each for each in place if each[0] != "write"] == [
        ("length", "too_short", "jsonl/a.jsonl/32"),
        ("read", "empty", "jsonl/a.jsonl: line 33"),
        ("length", "too_short", "jsonl/a.jsonl/35"),
        ("read", "bad", "jsonl/a.jsonl: line 36: not JSON"),
    ]
    same = [line for line in found if line["stage"] == "write"]
    assert {line["reason"] for line in same} == {"same_text"}
    assert {line["id"] for line in same} < {f"jsonl/a.jsonl/{number}" for number in (4, 5, 31, 34)}
    copied = [text.replace(". ", ".\n").lower() for text in raw.texts(30)[3:5]]
    assert sorted(line["text"].lower() for line in same) == sorted(copied)
    raw.run(*given, "--out", tmp_path / "without")
    assert contents(tmp_path / "out") == contents(tmp_path / "without")


def test_the_lines_agree_with_the_counts_of_the_manifest(tmp_path: Path) -> None:
    threads = [raw.texts(4, number, 1) for number in range(5)]
    dumps = raw.write_reddit(tmp_path / "dumps", [*threads, ["Alone and unanswered for ever."], threads[0]])
    raw.run("reddit", dumps, "--out", tmp_path / "out", "--language", "any", "--rejected", tmp_path / "no.jsonl")
    counted = Counter(line["reason"] for line in lines(tmp_path / "no.jsonl"))
    dropped = Counter(source_of(tmp_path / "out")["counts"]["dropped"])
    assert counted == dropped
    assert counted["alone"] == 1


def test_an_interrupted_run_writes_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = texts_file(tmp_path)
    command = "jsonl", file, *OPTIONS, "--out", tmp_path / "out", "--rejected", tmp_path / "no.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(writing.packing, "write_shard", interrupted)
        with pytest.raises(SystemExit):
            raw.run(*command)
    assert not (tmp_path / "no.jsonl").exists()
    raw.run(*command)
    raw.run("jsonl", file, *OPTIONS, "--out", tmp_path / "whole", "--rejected", tmp_path / "whole.jsonl")
    assert (tmp_path / "no.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_full_disk_is_said_of_the_file_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "task.rejected").write_bytes(b"x" * (1 << 20))
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(InputError, match=f"^{tmp_path}/no.jsonl: cannot write: No space left on device$"):
        rejected.collect([tmp_path / "task"], tmp_path / "no.jsonl")


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_what_cannot_be_written_is_said_at_once(tmp_path: Path, capfd: Capture) -> None:
    file = texts_file(tmp_path)
    message = refusal(capfd, "jsonl", file, "--out", tmp_path / "out", "--rejected", tmp_path / "none" / "no.jsonl")
    assert message == f"{tmp_path}/none/no.jsonl: its folder does not exist; create it"
    assert not (tmp_path / "out").exists()
    raw.run("jsonl", file, *OPTIONS, "--out", tmp_path / "out")
    message = refusal(capfd, "jsonl", file, *OPTIONS, "--out", tmp_path / "out", "--rejected", tmp_path / "no.jsonl")
    assert message.startswith(f"{tmp_path}/out: is complete already; to write {tmp_path}/no.jsonl, choose another")
