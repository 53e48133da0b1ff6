"""What `stats`, `inspect` and `export` show of shards."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import export, find, plots, stats
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.sources.webdataset import WEBDATASET
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import raw
from tests.data_prep.forge import edit
from tests.data_prep.raw import Capture
from tests.toy import ROOT, environment

DROPPED = {"too short": 30, "not English": 10}
STAGES = [{"name": "read", "parameters": {}, "in": 242, "out": 202, "dropped": DROPPED}]


@pytest.fixture(scope="module")
def made(small: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[np.ndarray]]]:
    """A folder with shards of random documents, among them an empty one, and one with a long segment; read only."""
    folder, rng = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    documents = [[rng.zipf(1.5, n) % 100 + 5 for n in rng.integers(0, 20, rng.integers(1, 6))] for _ in range(200)]
    documents += [[], [np.full(1000, small.unk)]]
    source = {"counts": {"documents": 202, "dropped": DROPPED}, "stages": STAGES, "pairs": True}
    with ShardWriter(folder / "shards", small, 100, 4, source) as writer:
        for number, document in enumerate(documents):
            writer.add(str(number), document)
    return folder, documents


@pytest.fixture
def folder(made: tuple[Path, object], tmp_path: Path) -> Path:
    """A copy, to change."""
    return Path(shutil.copytree(made[0], tmp_path / "made"))


def expected(lengths: list[int]) -> dict[str, Any]:
    """Return what `collect` should report for these lengths."""
    ordered = sorted(lengths)
    return {
        "min": ordered[0],
        **{f"p{p}": ordered[-(-p * len(ordered) // 100) - 1] for p in (5, 25, 50, 75, 95)},
        "max": ordered[-1],
        "mean": pytest.approx(sum(ordered) / len(ordered)),
    }


def test_every_document_segment_and_token_is_counted(made: tuple[Path, list[list[np.ndarray]]]) -> None:
    folder, documents = made
    numbers = stats.collect(folder)
    shards = list((folder / "shards").glob("shard-*.tar"))
    segments = [segment for document in documents for segment in document]
    assert len(shards) > 3
    assert numbers["counts"] == {
        "documents": 202,
        "segments": len(segments),
        "tokens": sum(map(len, segments)),
        "bytes": sum(shard.stat().st_size for shard in shards),
        "shards": len(shards),
        "dropped": DROPPED,
    }
    assert numbers["stages"] == STAGES
    for name, lengths in {
        "document_tokens": [sum(map(len, document)) for document in documents],
        "segment_tokens": list(map(len, segments)),
        "query_tokens": [len(document[0]) for document in documents if document],
    }.items():
        of = numbers["lengths"][name]
        rows = of.pop("histogram")
        assert of == expected(lengths)
        assert (rows[0][0], rows[-1][:2]) == (0, [512, 1023])
        assert [number for *_, number in rows] == [sum(low <= n <= high for n in lengths) for low, high, _ in rows]
        assert sum(number for *_, number in rows) == len(lengths)


def test_the_vocabulary_is_measured_by_how_often_its_pieces_occur(
    made: tuple[Path, list[list[np.ndarray]]], small: Tokenizer
) -> None:
    numbers = stats.collect(made[0])["vocabulary"]
    ids = Counter(int(i) for document in made[1] for segment in document for i in segment)
    ranked = [number for _, number in ids.most_common()]
    total, half = sum(ranked), numbers["tokens_of_half"]
    assert (numbers["size"], numbers["used"], numbers["coverage"]) == (120, len(ids), len(ids) / 120)
    assert numbers["unknown_share"] == ids[small.unk] / total
    assert 2 * sum(ranked[: half - 1]) < total <= 2 * sum(ranked[:half])
    assert numbers["frequencies"] == [[rank, ranked[rank - 1]] for rank in (1, 2, 4, 8, 16, 32, 64, len(ranked))]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("stages", stages) for stages in (3, ["cleaned by hand"], [{"name": "cut"}], [{**STAGES[0], "in": -1}])),
        *(("counts", counts) for counts in (None, [], {"dropped": 3})),
        ("counts", {"dropped": {"a": "x", "b": -1, "c": True, "d": 10**30, "e": [1]}}),
    ],
)
def test_stages_and_counts_of_another_form_are_not_shown(folder: Path, key: str, value: object) -> None:
    edit(folder / "shards", lambda record: record["source"].update({key: value}))
    numbers = stats.collect(folder)
    assert (numbers["stages"] if key == "stages" else numbers["counts"]["dropped"]) in ([], {})


def test_documents_without_a_token_have_no_lengths(
    small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "save", lambda figure, path: path)  # a picture takes half a second
    with ShardWriter(tmp_path, small) as writer:
        writer.add("empty", [])
    numbers = stats.collect(tmp_path)
    assert numbers["lengths"]["document_tokens"]["histogram"] == [[0, 0, 1]]
    assert numbers["lengths"]["segment_tokens"]["histogram"] == []
    assert (numbers["lengths"]["segment_tokens"]["max"], numbers["vocabulary"]["tokens_of_half"]) == (0, 0)
    assert "documents" in stats.table(numbers)
    assert "query_tokens" not in numbers["lengths"]  # of pairs
    assert len(plots.draw(numbers, [], tmp_path / "plots")) == 3


def test_the_table_is_aligned_and_cannot_steer_a_terminal(folder: Path) -> None:
    more = {"\x1b[31mred\n" + "x" * 99: 5}
    edit(folder / "shards", lambda record: record["source"]["counts"]["dropped"].update(more))
    lines = stats.run(folder, as_json=False, folder=None).splitlines()
    assert all(map(str.isprintable, lines))
    assert lines[0] == str(folder / "shards")
    assert lines[2].split() == ["documents", "202"]
    assert [line.split()[0] for line in lines[3:7]] == ["segments", "tokens", "bytes", "shards"]
    start = next(number for number, line in enumerate(lines) if line.startswith("dropped"))
    dropped = lines[start + 1 : start + 4]
    assert lines[start].split() == ["dropped", "45"]
    assert [" ".join(line.split()[-3:]) for line in dropped] == ["30 66.67 %", "10 22.22 %", "5 11.11 %"]
    assert len(set(map(len, dropped))) == 1
    assert next(line.split() for line in lines if "pieces that occur" in line)[-1] == "%"


def test_only_the_commonest_reasons_are_printed(made: tuple[Path, object]) -> None:
    numbers = stats.collect(made[0])
    numbers["counts"]["dropped"] = {f"reason {number}": number for number in range(50)}
    text = stats.table(numbers)
    assert "reason 49" in text
    assert "reason 29 " not in text
    assert "and for 30 more reasons" in text


def test_plots_are_pictures_even_of_reasons_like_formulas(folder: Path) -> None:
    assert json.loads(stats.run(folder, as_json=True, folder=None)) == stats.collect(folder / "shards")
    edit(folder / "shards", lambda record: record["source"]["counts"]["dropped"].update({r"$\nonsense{$": 5}))
    text = stats.run(folder, as_json=False, folder=folder / "plots")
    paths = sorted((folder / "plots").iterdir())
    assert [path.stem for path in paths] == ["document-lengths", "dropped", "segment-lengths", "vocabulary"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert str(path) in text.splitlines()


def test_plots_without_matplotlib_name_the_extra_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"not installed: matplotlib; run: pip install 'deepsiam\[evaluate\]'"):
        stats.run(folder / "nothing", as_json=False, folder=folder / "plots")  # before anything is read
    assert not (folder / "plots").exists()


@pytest.fixture
def searched(small: Tokenizer, tmp_path: Path) -> Path:
    with ShardWriter(tmp_path, small, 12, 2) as writer:
        for number in range(8):
            writer.add(f"zoo:{number}", small.encode(["The fox jumps.", "The dog sleeps."][: 1 + number % 2]))
        writer.add("zoo:7#2", small.encode(["The fox sleeps."]))
        writer.add("zoo:77", small.encode(["The fox."]))
        writer.add("zoo:empty", [])
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "most", "ids"),
    [
        ({}, 2, ["0", "1"]),
        ({"name": "zoo:7"}, 5, ["7", "7#2"]),
        ({"pattern": re.compile("D.g SLEEPS", re.IGNORECASE)}, 3, ["1", "3", "5"]),
        ({"pattern": re.compile("dog sleeps")}, 100, ["1", "3", "5", "7"]),
    ],
    ids=["any", "an id and its parts", "a pattern", "all with a pattern"],
)
def test_documents_are_found_in_all_shards(searched: Path, wanted: dict[str, Any], most: int, ids: list[str]) -> None:
    found = list(find.find(searched, most, **wanted))
    assert [text.partition(" (")[0].partition(": ")[2] for text in found] == [f"zoo:{id}" for id in ids]
    assert found[0].startswith("shard-000000.tar: zoo:") == (ids[0] in "01")


def test_the_command_prints_them(searched: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "SEGMENTS", 2)  # so many are not too many
    command = "inspect", searched, "--grep"
    assert main([str(word) for word in (*command, "dog", "--documents", "1")]) == 0
    first, *lines = capfd.readouterr().out.splitlines()
    assert first.startswith("shard-000000.tar: zoo:1 (2 segments, ")
    assert lines == ["  the fox jumps.", "  the dog sleeps."]
    assert "no document of its 11 matches" in raw.refused(capfd, "inspect", searched, "--id", "zoo")
    assert "'(' is not a regular expression" in raw.refused(capfd, *command, "(")
    message = raw.refused(capfd, *command, "dog", "--documents", 0)
    assert "--documents: '0' is not a whole number above 0" in message


@pytest.fixture
def exported(small: Tokenizer, tmp_path: Path) -> Path:
    with ShardWriter(tmp_path / "shards", small, 8, 2) as writer:
        for number in range(30):
            writer.add(f"d{number}", small.encode(["the fox jumps", "a dog sleeps"][: number % 3]))
    return tmp_path


def test_every_document_is_a_line_of_its_decoded_segments(exported: Path, capsys: Capture) -> None:
    assert main(["export", str(exported), "--jsonl"]) == 0
    printed = capsys.readouterr().out
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"id": f"d{number}", "group": f"d{number}", "text": ["the fox jumps", "a dog sleeps"][: number % 3]}
        for number in range(30)
    ]
    assert main(["export", str(exported / "shards"), "--jsonl", "--out", str(exported / "all.jsonl")]) == 0
    assert (exported / "all.jsonl").read_text() == printed


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
def test_a_refusal_leaves_no_file(exported: Path, capfd: Capture, options: str, reason: str) -> None:
    raw.flip(exported / "shards" / "shard-000001.tar")
    message = raw.refused(capfd, "export", exported, *options.format(folder=exported).split())
    assert reason.format(folder=exported) in message
    assert [path.name for path in exported.iterdir()] == ["shards"]


def test_the_docs_read_samples(exported: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(export, "SIZE", 400)  # a few samples
    page = (ROOT / "docs" / "shards.md").read_text()
    [(command, out)] = re.findall(r"python -m data_prep (export \S+ --webdataset --out (\S+))", page)
    code = textwrap.dedent(page[page.index("    import webdataset\n") :].partition("\n\n")[0])
    assert len(code.splitlines()) == 3
    assert main([str(exported) if "/" in word else word for word in command.split()[:-1]] + [str(exported / out)]) == 0
    last = len(list((exported / out).iterdir())) - 1
    assert last > 1
    assert f"{out}/text-{{000000..000003}}.tar" in code
    exec(code.replace(out, str(exported / out)).replace("000003", f"{last:06d}"))
    documents = [json.loads(line) for line in export.json_lines(exported / "shards")]
    assert capsys.readouterr().out == "".join(f"{line['id']} {chr(10).join(line['text'])}\n" for line in documents)


def test_exported_samples_are_read_back_as_the_same_documents(exported: Path, tmp_path: Path) -> None:
    assert main(["export", str(exported), "--webdataset", "--out", str(tmp_path / "tars")]) == 0
    items = WEBDATASET.documents([tmp_path / "tars"], segments="sentences", group="group")
    read = [(item.segments, item.group) for item in items if isinstance(item, Document)]
    lines = [json.loads(line) for line in export.json_lines(exported / "shards")]
    assert read == [(tuple(line["text"]), f"webdataset/{line['group']}") for line in lines if line["text"]]
    first = {path.name: path.read_bytes() for path in (tmp_path / "tars").iterdir()}
    assert main(["export", str(exported), "--webdataset", "--out", str(tmp_path / "again")]) == 0
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
