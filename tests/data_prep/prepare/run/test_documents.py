"""Preparations of small and of odd inputs: which documents, in which order, what is told, and what stays as it is."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import output, reading, texts
from deepsiam.data_prep.prepare.spool import key_of
from deepsiam.data_prep.shards import verify
from deepsiam.data_prep.text.normalize import fold
from tests import toy
from tests.data_prep import raw
from tests.data_prep.raw import Capture, contents, near_copy, refusal, source_of

NEAR = ["--near-duplicates", 0.8]


def prepared(folder: Path, texts: Sequence[str | dict[str, Any]], *arguments: object, name: str = "out") -> Path:
    """Prepare a data set of texts; the id of each is the number of its line."""
    file = raw.write_jsonl(folder / f"{name}.jsonl", texts)
    raw.run("jsonl", file, "--out", folder / name, *arguments)
    return folder / name


def dropped(out: Path) -> dict[str, int]:
    return source_of(out)["counts"]["dropped"]


def test_a_quotation_of_thirteen_words_of_a_collection_is_dropped(tmp_path: Path) -> None:
    words = raw.texts(1, 9, sentences=10)[0].replace(".", "").split()
    query, body = " ".join(words[:20]), " ".join(words[20:60])
    folder = toy.write_beir(tmp_path / "collection", {"d": body}, {"q": query})

    def quotes(text: str, number: int) -> str:
        return f"Nobody but {' '.join(text.split()[3 : 3 + number]).upper()}, somebody wrote."

    texts = [quotes(query, 13), quotes(body, 13), quotes(query, 12), quotes(body, 12), *raw.texts(5)]
    out = prepared(tmp_path, texts, "--decontaminate", folder)
    assert raw.ids(out) == set(map(str, range(3, 10)))
    assert dropped(out) == {"contaminated": 2}


CHANGING = ("read", "join", "cut")  # stages that may turn one document into several, or several into one


def check_counts(out: Path, capfd: Capture) -> None:
    """Check that the manifest agrees with itself, with the shards, `verify` and `stats`."""
    counts = source_of(out)["counts"]
    stages = source_of(out)["stages"]
    documents = raw.documents(out)
    assert counts["documents"] == len(documents)
    assert counts["segments"] == sum(len(document.segments) for document in documents)
    assert counts["tokens"] == sum(len(segment) for document in documents for segment in document.segments)
    assert verify.verify(out / "shards") == []
    capfd.readouterr()
    assert main(["stats", str(out), "--json"]) == 0
    recorded = json.loads(capfd.readouterr().out)
    for name in ("documents", "segments", "tokens", "dropped"):
        assert recorded["counts"][name] == counts[name]
    assert recorded["stages"] == stages
    assert main(["verify", str(out)]) == 0
    assert f"{len(documents):,} documents" in capfd.readouterr().out
    totals: dict[str, int] = {}
    for before, stage in zip([None, *stages], stages, strict=False):
        assert before is None or stage["in"] == before["out"]
        if stage["name"] not in CHANGING:
            assert stage["in"] == stage["out"] + sum(stage["dropped"].values())
        for reason, number in stage["dropped"].items():
            totals[reason] = totals.get(reason, 0) + number
    assert totals == counts["dropped"]
    assert stages[-1]["out"] == counts["documents"] + counts["held_out_documents"]


@pytest.mark.usefixtures("datasketch")
def test_the_counts_of_json_lines_agree_and_all_copies_are_dropped(tmp_path: Path, capfd: Capture) -> None:
    texts = raw.texts(60, sentences=10)
    others = [
        prepared(tmp_path, texts[:5], "--held-out", 0.4, *NEAR, name="other"),
        prepared(tmp_path, [near_copy(texts[30]), texts[31]], *NEAR, name="another"),
    ]
    records = [*texts, *texts[:8], *map(near_copy, texts[10:20]), "Few words.", " ", "Genug der vielen Worte. " * 6]
    wanted = ["--min-words", 3, "--language", "en", "--held-out", 0.2, *NEAR, "--max-bad", 0.1]
    wanted += [word for folder in others for word in ("--against", folder)]
    out = prepared(tmp_path, [*records, {"no": 1}], *wanted)
    check_counts(out, capfd)
    reasons = {"bad": 1, "empty": 1, "too_short": 1, "other_language": 1, "elsewhere": 12, "same_text": 3}
    assert dropped(out) == {**reasons, "near_duplicate": 10}
    assert source_of(out)["stages"][0]["in"] == len(records) + 1


def test_the_counts_of_reddit_agree(tmp_path: Path, capfd: Capture) -> None:
    texts = raw.texts(80, sentences=1)
    threads = [texts[4 * number : 4 * number + 4] for number in range(20)]
    threads += [["Nobody answers this one.", "[deleted]"], threads[0]]
    folder = raw.write_reddit(tmp_path / "dumps", threads)
    raw.run("reddit", folder, "--out", tmp_path / "out", "--held-out", 0.3)
    check_counts(tmp_path / "out", capfd)
    assert dropped(tmp_path / "out") == {"alone": 1, "deleted": 1, "same_text": 1}
    read = source_of(tmp_path / "out")["stages"][0]
    assert (read["name"], read["in"], read["out"], read["dropped"]) == ("read", 86, 86, {})
    assert (read["parameters"]["language"], read["parameters"]["pairs"]) == ("en", False)


def test_a_document_that_is_too_long_is_cut_and_counted(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 1 << 16)
    long = "\n\n".join(raw.texts(1000))
    out = prepared(tmp_path, [long, "Short."])
    check_counts(out, capfd)
    assert raw.ids(out) == {"1", "1#2", "1#3", "2"}
    cut = next(stage for stage in source_of(out)["stages"] if stage["name"] == "cut")
    assert (cut["in"], cut["out"]) == (2, 4)


def test_the_summary_has_stages_the_record_no_path(tmp_path: Path, capfd: Capture) -> None:
    out = prepared(tmp_path, [*raw.texts(30), "One.", "One."])
    message = capfd.readouterr().out
    assert "31 documents" in message
    assert "32            31  1 same_text" in message
    recorded = source_of(out)["inputs"]
    assert [file["name"] for file in recorded["files"]] == ["jsonl/out.jsonl"]
    assert recorded["bytes"] == (tmp_path / "out.jsonl").stat().st_size
    assert str(tmp_path).encode() not in b"".join(contents(out).values())


# the order of documents, and what else is kept of them


def test_documents_are_in_the_order_of_their_keys(tmp_path: Path) -> None:
    out = prepared(tmp_path, raw.texts(300), "--shards", 3, "--chunk-tokens", 200)
    keys = [document.key for document in raw.documents(out)]
    assert keys == sorted(set(keys))
    assert [len(shard) for shard in raw.shards_of(out)] == [
        sum(low <= key < low + (1 << 64) / 3 for key in keys) for low in (0, (1 << 64) / 3, 2 * (1 << 64) / 3)
    ]


def test_headings_and_text_survive(tmp_path: Path) -> None:
    page = "The river is long. It has an island.\n\n== The Bridge ==\nThe bridge was old.\n\n=== Its End ===\nIt is."
    file = raw.write_wikipedia(tmp_path / "a.xml", [page, *raw.texts(20)])
    raw.run("wikipedia", file, "--out", tmp_path / "out", "--tokenizer-kind", "bpe")
    document = next(one for one in raw.documents(tmp_path / "out") if one.id == "wikipedia/1")
    text = raw.decoded(tmp_path / "out")["wikipedia/1"]
    assert "/".join(text) == "The river is long./It has an island./The Bridge/The bridge was old./Its End/It is."
    assert (document.headings, document.context) == ((2, 4), 0)
    assert document.key == key_of(fold("\n".join(text)))


def test_the_context_of_a_dialogue_survives(tmp_path: Path) -> None:
    folder = raw.write_reddit(tmp_path / "dumps", [raw.texts(3, sentences=1)])
    other = {"id": "z", "link_id": "t3_p0", "parent_id": "t1_c0x1", "author": "u", "created_utc": 9}
    raw.write_jsonl(folder / "RC_2020-03", [{**other, "body": "What if the river was in the garden?"}])
    raw.run("reddit", folder, "--out", tmp_path / "out")
    context = {document.id: (len(document.segments), document.context) for document in raw.documents(tmp_path / "out")}
    assert context == {"reddit/t3_p0": (3, 0), "reddit/t3_p0/t1_z": (3, 2)}


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
