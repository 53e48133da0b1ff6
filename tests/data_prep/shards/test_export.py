import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import webdataset

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.shards import export
from deepsiam.data_prep.shards.export import json_lines
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.sources.webdataset import WEBDATASET
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import raw
from tests.toy import ROOT, environment


@pytest.fixture
def folder(small: Tokenizer, tmp_path: Path) -> Path:
    with ShardWriter(tmp_path / "shards", small, 8, 2) as writer:
        for number in range(30):
            writer.add(f"d{number}", small.encode(["the fox jumps", "a dog sleeps"][: number % 3]))
    return tmp_path


def test_every_document_is_a_line_of_its_decoded_segments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(folder), "--jsonl"]) == 0
    printed = capsys.readouterr().out
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"id": f"d{number}", "group": f"d{number}", "text": ["the fox jumps", "a dog sleeps"][: number % 3]}
        for number in range(30)
    ]
    assert main(["export", str(folder / "shards"), "--jsonl", "--out", str(folder / "all.jsonl")]) == 0
    assert (folder / "all.jsonl").read_text() == printed


def test_the_thread_is_the_group(tmp_path: Path) -> None:
    dumps = raw.write_reddit(tmp_path / "dumps", [raw.texts(4, number, 1) for number in range(3)])
    branch = {"id": "b", "link_id": "t3_p0", "parent_id": "t3_p0", "author": "u", "created_utc": 9}
    raw.write_jsonl(dumps / "RC_2020-09", [{**branch, "body": "The river is in the garden of the house."}])
    raw.run("reddit", dumps, "--out", tmp_path / "out")
    groups = {record["id"]: record["group"] for record in map(json.loads, json_lines(tmp_path / "out" / "shards"))}
    assert groups == {"reddit/t3_p0/t1_b": "reddit/t3_p0", **{f"reddit/t3_p{n}": f"reddit/t3_p{n}" for n in range(3)}}


DAMAGED = "{folder}/shards/shard-000001.tar: its SHA-256 is not the one in the manifest"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("", "one of the arguments --jsonl --webdataset is required"),
        ("--jsonl --out {folder}", "{folder}: is a folder: name a file"),
        ("--jsonl --out {folder}/all.jsonl", DAMAGED),
        ("--webdataset", "name the folder to make with --out DIR"),
        ("--webdataset --out {folder}", "{folder}: exists; remove it"),
        ("--webdataset --out {folder}/tars", DAMAGED),
    ],
)
def test_a_refusal_is_one_line_and_leaves_no_file(
    folder: Path, capfd: pytest.CaptureFixture[str], options: str, reason: str
) -> None:
    shard = folder / "shards" / "shard-000001.tar"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(folder), *options.format(folder=folder).split()])
    assert stopped.value.code == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert reason.format(folder=folder) in line
    assert [path.name for path in folder.iterdir()] == ["shards"]


def test_the_lines_of_the_docs_read_exported_samples(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "SIZE", 400)  # a few samples
    page = (ROOT / "docs" / "shards.md").read_text()
    [(command, out)] = re.findall(r"python -m data_prep (export \S+ --webdataset --out (\S+))", page)
    code = textwrap.dedent(page[page.index("    import webdataset\n") :].partition("\n\n")[0])
    assert len(code.splitlines()) == 3
    assert main([str(folder) if "/" in word else word for word in command.split()[:-1]] + [str(folder / out)]) == 0
    last = len(list((folder / out).iterdir())) - 1
    assert last > 1
    assert f"{out}/text-{{000000..000003}}.tar" in code
    exec(code.replace(out, str(folder / out)).replace("000003", f"{last:06d}"))
    documents = [json.loads(line) for line in export.json_lines(folder / "shards")]
    assert capsys.readouterr().out == "".join(f"{line['id']} {chr(10).join(line['text'])}\n" for line in documents)


def test_exported_samples_are_read_back_as_the_same_documents(folder: Path, tmp_path: Path) -> None:
    assert main(["export", str(folder), "--webdataset", "--out", str(tmp_path / "tars")]) == 0
    items = WEBDATASET.documents([tmp_path / "tars"], segments="sentences", group="group")
    read = [(item.segments, item.group) for item in items if isinstance(item, Document)]
    lines = [json.loads(line) for line in export.json_lines(folder / "shards")]
    assert read == [(tuple(line["text"]), f"webdataset/{line['group']}") for line in lines if line["text"]]
    first = {path.name: path.read_bytes() for path in (tmp_path / "tars").iterdir()}
    assert main(["export", str(folder), "--webdataset", "--out", str(tmp_path / "again")]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == first


def test_cleaned_text_is_exported_as_samples_with_its_metadata(tmp_path: Path) -> None:
    source = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(3))
    raw.run("jsonl", source, "--out", tmp_path / "out", "--text-only")
    assert main(["export", str(tmp_path / "out"), "--webdataset", "--out", str(tmp_path / "tars")]) == 0
    samples = list(webdataset.WebDataset(str(tmp_path / "tars" / "text-000000.tar"), shardshuffle=False).decode())
    assert {sample["txt"].replace("\n", " ") for sample in samples} == set(raw.texts(3))
    assert {sample["json"]["source"] for sample in samples} == {"jsonl"}


def test_a_reader_that_stops_early_ends_it_quietly(small: Tokenizer, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "shards", small) as writer:
        for number in range(5000):  # more than a pipe holds
            writer.add(f"d{number}", [[5] * 20])
    command = [sys.executable, "-m", "data_prep", "export", str(tmp_path), "--jsonl"]
    read, write = os.pipe()
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert os.read(read, 10) == b'{"id": "d0'
    os.close(read)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 141
