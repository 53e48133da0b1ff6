"""Odd and damaged input, and an --out that is not new: what is told, and that no finished work is lost."""

import os
import re
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import output, texts
from tests.data_prep import raw
from tests.data_prep.raw import Capture, contents, refusal


def test_sentences_left_out_for_unknown_templates_are_counted(tok: Path, tmp_path: Path, capfd: Capture) -> None:
    texts = [f"{text} It is {{{{height of|fox}}}} tall. {text}" for text in raw.texts(5)]
    pages = [*texts, "It weighs {{weight of|fox}}.", "It is {{height of|dog}} tall.", "{{height of|box}}\nA fox runs."]
    dump = raw.write_wikipedia(tmp_path / "pages-articles.xml", pages)
    out = raw.agree(tmp_path, "wikipedia", dump, "--tokenizer", tok, numbers=[2])
    read = raw.source_of(out)["stages"][0]
    assert read["sentences"] == {"height of": 6, "weight of": 1}
    assert read["dropped"] == {"empty": 2}
    assert not any("is tall" in segment for text in raw.decoded(out).values() for segment in text)
    printed = capfd.readouterr().out
    assert "sentences left out for unknown templates: 7 (6 height of, 1 weight of)\n" in printed


def test_guessed_encodings_are_counted(tmp_path: Path, capfd: Capture) -> None:
    pytest.importorskip("py3langid", reason="needs the packages of the extra `dumps`")
    (tmp_path / "in").mkdir()
    for number, text in enumerate(raw.texts(4)):
        encoding = ("utf-8", "cp1252", "utf-16", "cp1252")[number]
        (tmp_path / "in" / f"{number}.txt").write_bytes(f"“{text}” – naïve café.".encode(encoding))
    raw.run("text", tmp_path / "in", "--out", tmp_path / "out")
    read = raw.source_of(tmp_path / "out")["stages"][0]
    assert read["guessed"] == {"cp1252": 2, "utf_16": 1}
    assert read["guessed_for"] == {"cp1252": ["text/1.txt", "text/3.txt"], "utf_16": ["text/2.txt"]}
    printed = capfd.readouterr().out
    assert re.search(r"read +4 +4  ; 2 read as cp1252; 1 read as utf_16\n", printed)
    assert "\n    read as cp1252: text/1.txt, text/3.txt\n    read as utf_16: text/2.txt\n" in printed
    message = refusal(capfd, "text", tmp_path / "in", "--out", tmp_path / "named", "--encoding", "utf8")
    assert message.startswith(
        f"3 of 4 records are bad, more than --max-bad 0.001, as {tmp_path}/in/1.txt: the file: not utf"
    )


def test_control_characters_reach_neither_shards_nor_terminal(tmp_path: Path, capfd: Capture) -> None:
    file = tmp_path / "a\x1b[2J.jsonl"
    raw.write_jsonl(file, ["An \x1b[31mescape\x00 and\u202e more\x07.\x85", "Fine \u200bone.\r\n\tTwo."])
    raw.run("jsonl", file, "--out", tmp_path / "out", "--tokenizer-kind", "bpe", "--vocab-size", 270)
    for name, segments in raw.decoded(tmp_path / "out").items():
        assert all(map(str.isprintable, [name, *segments]))
    file.write_text("{\n")
    with pytest.raises(SystemExit):
        main(raw.command("jsonl", file, "--out", tmp_path / "other"))
    captured = capfd.readouterr().err
    assert "a\\x1b[2J.jsonl: line 1: not JSON" in captured
    assert captured.replace("\n", "").isprintable()


def test_a_vocabulary_that_the_text_is_too_small_for_is_named(tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(3))
    raw.run("jsonl", file, "--out", tmp_path / "out", "--vocab-size", 5000)
    printed = capfd.readouterr().out
    assert re.search(r"training a vocabulary of 5,000\nthe text has pieces for a vocabulary of \d+ only\n", printed)


def test_a_second_process_is_refused(tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(3))
    reading, writing = os.pipe()
    if not (child := os.fork()):  # a lock belongs to a process
        with output.alone(tmp_path / "out" / ".partial"):
            os.write(writing, b"x")
            signal.pause()
    os.read(reading, 1)
    try:
        message = refusal(capfd, "jsonl", file, "--out", tmp_path / "out")
        assert message == f"{tmp_path}/out: is being prepared by another process; wait for it, or stop it"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raw.run("jsonl", file, "--out", tmp_path / "out")


def test_a_finished_output_is_left_alone(tmp_path: Path, capfd: Capture) -> None:
    file, out = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(40)), tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    raw.run("jsonl", file, "--out", out, "--held-out", 0.2)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert out / "mine" in before
    capfd.readouterr()
    raw.run("jsonl", file, "--out", out, "--held-out", 0.2, workers=2)
    assert capfd.readouterr().out == f"{out}: complete already, nothing to do\n"
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    shard = out / "held_out" / "shard-000000.tar"
    shard.write_bytes(b"")
    message = refusal(capfd, "jsonl", file, "--out", out, "--held-out", 0.2)
    assert message.startswith(f"{shard}: 0 bytes, the manifest lists ")
    assert message.endswith(f"(remove {out} to prepare it again)")


@pytest.mark.usefixtures("datasketch")
@pytest.mark.parametrize("options", [[], ["--text-only"]], ids=["shards", "text"])
def test_joins_of_other_input_are_not_used(
    options: list[str], tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = (
        raw.write_reddit(tmp_path / str(seed), [raw.texts(4, 100 * seed + i) for i in range(20)]) for seed in (1, 2)
    )
    options = [*options, "--near-duplicates", "0.8"]
    with monkeypatch.context() as patch:  # all but the last step
        for module in (output, texts):
            patch.setattr(module, "finish", Mock(side_effect=InputError("the disk is full")))
        assert refusal(capfd, "reddit", before, "--out", tmp_path / "out", *options) == "the disk is full"
    raw.run("reddit", now, "--out", tmp_path / "out", *options)
    raw.run("reddit", now, "--out", tmp_path / "whole", *options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_changed_evaluation_is_other_input(tmp_path: Path, capfd: Capture) -> None:
    some = raw.texts(9)
    file, evaluation, out = raw.write_jsonl(tmp_path / "a.jsonl", some), tmp_path / "beir", tmp_path / "out"
    evaluation.mkdir()
    raw.write_jsonl(evaluation / "corpus.jsonl", [{"_id": "1", "text": "A fox."}])
    raw.write_jsonl(evaluation / "queries.jsonl", [{"_id": "1", "text": "Which fox?"}])
    command = "jsonl", file, "--out", out, "--decontaminate", evaluation
    for _ in range(2):
        raw.run(*command)
    assert "complete already" in capfd.readouterr().out
    raw.write_jsonl(evaluation / "corpus.jsonl", [{"_id": "1", "text": some[0]}])
    assert refusal(capfd, *command).startswith(f"{out}: was made from other input or with other options")
