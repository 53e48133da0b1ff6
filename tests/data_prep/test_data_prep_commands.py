import json
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.demo import distributions
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.sources.docstrings.modules import SourceFile
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.raw import Capture
from tests.hub import Hub, go_offline


@pytest.fixture
def written(small: Tokenizer, tmp_path: Path) -> Path:
    with ShardWriter(tmp_path / "shards", small, 3, 2) as writer:
        for number in range(9):
            writer.add(str(number), [[9, 10, 11]])
    return tmp_path / "shards"


def failure(arguments: list[str], capsys: Capture) -> list[str]:
    """Return the lines on stderr of a command that must end with exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    return capsys.readouterr().err.splitlines()


def test_verify_prints_one_line_for_sound_shards_and_for_each_problem(written: Path, capsys: Capture) -> None:
    (written / "splits").mkdir()  # as a collection has, but this is none
    assert main(["verify", str(written)]) == 0
    assert capsys.readouterr().out.startswith(f"{written}: 5 shards are whole: 9 documents, 9 segments, 27 tokens")
    (written / "shard-000001.tar").unlink()
    (written / "shard-000003.tar").write_bytes(b"")
    missing, empty = failure(["verify", str(written)], capsys)
    assert missing.startswith(f"data_prep: {written}/shard-000001.tar: missing")
    assert empty.startswith(f"data_prep: {written}/shard-000003.tar: 0 bytes")


READERS = ("inspect", "stats", "export --jsonl")
DIGITS = "is too large: it has more than 15 digits"
REFUSED = [
    *((f"{command} SHARDS/nowhere", "SHARDS/nowhere/manifest.json: no such file") for command in ("verify", *READERS)),
    *((f"{command} COLLECTION", "COLLECTION: is a collection: name shards, or a data set") for command in READERS),
    *((f"text SHARDS/nowhere --out x --vocab-size={'9' * digits}", DIGITS) for digits in (16, 5000)),
    *(
        (f"{command} --out=", "argument --out: is empty: name a folder")
        for command in ("text a", "merge a", "docstrings")
    ),
    ("collection SHARDS/nowhere --tokenizer SHARDS", "SHARDS/nowhere"),
]


@pytest.mark.parametrize(("typed", "said"), REFUSED)
def test_bad_input_is_one_clear_line(
    written: Path, toy_collection: Path, capsys: Capture, typed: str, said: str
) -> None:
    for name, path in {"SHARDS": written, "COLLECTION": toy_collection}.items():
        typed, said = typed.replace(name, str(path)), said.replace(name, str(path))
    (line,) = failure(typed.split(), capsys)
    assert line.startswith(("data_prep: ", "deepsiam prepare "))
    assert said in line


@pytest.mark.parametrize("command", ["verify", "inspect", "stats", "export --jsonl"])
def test_the_parent_of_the_shards_folder_is_accepted(written: Path, command: str) -> None:
    assert main([*command.split(), str(written.parent)]) == 0


def test_collection_tokenises_beir(small: Tokenizer, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"_id": "a", "text": "The fox."}))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "fox"}))
    arguments = ["collection", str(tmp_path), "--tokenizer", str(small.path)]
    assert "no SPLIT.tsv with relevance judgements" in failure(arguments, capsys)[0]
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}: 1 documents, 1 queries (1 of test)",
        "unknown tokens: 0.00 % of 4 in a sample",
    ]
    assert main(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: every array is whole\n"

    (tmp_path / "manifest.json").unlink()
    assert "not tokenised, or not a collection" in failure(["verify", str(tmp_path)], capsys)[0]


def test_collection_tells_what_is_left_out(small: Tokenizer, tmp_path: Path, capsys: Capture) -> None:
    file, out = tmp_path / "\x1b[31mtrain.jsonl", tmp_path / "\x1b[31mout"
    labels = ("-", "neutral")
    records = [{"gold_label": label, "sentence1": "A fox.", "sentence2": "It runs."} for label in labels]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["collection", "nli", str(file), "--out", str(out), "--tokenizer", str(small.path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/\\x1b[31mout: 1 documents, 1 queries (1 of train)",
        "unknown tokens: 0.00 % of 9 in a sample",
        f"split train: left out 1 pairs without a gold label (the first: {tmp_path}/\\x1b[31mtrain.jsonl:1)",
    ]


def test_docstrings(files: list[SourceFile], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "files", lambda: files)
    arguments = ["docstrings", "--out", str(tmp_path / "out"), "--vocab-size", "400"]
    assert main([*arguments, "--workers", "2"]) == 0
    assert "to pre-train on:" in capsys.readouterr().out
    assert main([*arguments, "--workers", "1"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: complete already, nothing to do\n"
    assert "choose another --out" in failure(arguments[:-2], capsys)[0]
    (tmp_path / "out" / "collection" / "manifest.json").unlink()
    assert "not tokenised" in failure(arguments, capsys)[0]


def test_shards_are_made_of_a_data_set_of_the_hub(
    hub: Hub, small: Tokenizer, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {f"data/{i}.jsonl": json.dumps({"text": f"The fox {i} runs."}).encode() for i in range(3)}
    hub.publish("owner/data", lines | {"load.py": b"raise SystemExit"}, "datasets")
    given, out = ["--tokenizer", str(small.path), "--workers", "1"], str(tmp_path / "out")
    command = ["jsonl", "hf://datasets/owner/data/**/*.jsonl", *given, "--out", out]
    assert main(command) == 0
    assert not any("load.py" in request for request in hub.requests)
    assert main(["verify", out]) == 0
    assert "3 documents" in capsys.readouterr().out
    go_offline(monkeypatch)  # the same files are in the hub's cache
    assert main(command) == 0
    other = "hf://datasets/owner/other/*.jsonl"
    line = failure(["jsonl", other, *given, "--out", str(tmp_path / "no")], capsys)[-1]
    assert line.startswith(f"data_prep: {other}: is not in the hub's cache, and HF_HUB_OFF")
