"""Build a collection: the same bytes for any number of workers, after a kill, in place; verify finds a flipped bit."""

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.collections import build as build_module
from deepsiam.data_prep.collections import write_texts
from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection, texts_of, verify
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.data_prep.common.errors import InputError, StoppedError
from deepsiam.data_prep.common.files import whole_file, write_bytes
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.beir_folder import HEADER, write_beir
from tests.data_prep.collections.formats.contract import at
from tests.data_prep.collections.raw_formats import write_files
from tests.data_prep.forge import edit
from tests.data_prep.raw import contents, flip

FILES_ALONE = ("convai2", "dpr", "dstc7", "flagembedding", "ubuntu")


def test_bytes_are_equal_for_any_workers(tmp_path: Path, large: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "BATCH", 7)
    monkeypatch.setattr(write_texts, "BATCH", 3)
    monkeypatch.setattr(write_texts, "TASK", 11)
    records = [{"_id": str(n), "text": f"fox word{60_000 + n} " * (n % 3)} for n in range(100)]
    beir = write_beir(tmp_path / "beir")
    (beir / "corpus.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    (beir / "qrels" / "test.tsv").write_text(HEADER + "1\t7\t1\n")
    one, two = (build("beir", [beir], tmp_path / name, large, workers) for name, workers in (("one", 1), ("two", 2)))
    assert contents(one.directory) == contents(two.directory)
    for i, expected in enumerate(large.encode([str(record["text"]) for record in records])):
        np.testing.assert_array_equal(one.corpus.tokens(i), expected)
    assert one.corpus.tokens(4).dtype == np.uint32
    assert isinstance(one.corpus.token_rows.flat.base, np.memmap)


def published(out: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(out).items() if not name.startswith("building.")}


def killed(*arguments: object, **options: object) -> int:
    raise KeyboardInterrupt


def test_a_killed_build_goes_on_and_makes_the_same(
    beir: Path, small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("beir", [beir], tmp_path / "whole", small)
    written = []
    original = build_module.write_texts

    def count(folder: Path, *arguments: object, **options: object) -> int:
        written.append(folder.name)
        return original(folder, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(build_module, "write_texts", count)
    with monkeypatch.context() as patched:
        patched.setattr(build_module, "write_tokens", killed)
        with pytest.raises(KeyboardInterrupt):
            build("beir", [beir], tmp_path / "out", small)
    with pytest.raises(InputError, match="not tokenised"):
        Collection.open(tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "other")
    build("beir", [beir], tmp_path / "out", small)
    assert written == ["corpus", "queries"]  # each once over both runs
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    with open(beir / "corpus.jsonl", "a") as stream:
        stream.write('{"_id": "d", "text": "new"}\n')
    assert build("beir", [beir], tmp_path / "other", small).corpus.text(3) == "new"  # another input begins anew


def _exit_at(step: int, folder: Path) -> None:
    """End this process, without any cleaning up, before the given change of a name or new file in a folder.

    The stages, which all write alike, are ended at one in fifteen of their changes; the moves that follow at each.
    """
    left, weight = 15 * step, 1

    def exit_at(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left, weight
        changes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
        if (changes or (event == "open" and arguments[2] & os.O_CREAT)) and str(folder) in str(arguments[0]):
            if (folder / build_module.BUILDING / "manifest.json").exists():
                weight = 15
            left -= weight
            if left <= 0:
                os._exit(9)

    sys.addaudithook(exit_at)


def test_a_kill_at_any_step(beir: Path, small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, whole, out = (tmp_path / name for name in ("old", "whole", "out"))
    build("beir", [beir], old, small)
    with open(beir / "corpus.jsonl", "a") as stream:
        stream.write('{"_id": "d", "text": "new"}\n')
    build("beir", [beir], whole, small)
    states = [contents(old), contents(whole)]
    rests, step, killed = set(), 0, True
    while killed:
        step += 1
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)
        if not (child := os.fork()):
            try:
                _exit_at(step, out)
                build("beir", [beir], out, small)
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9)
        killed = code == 9
        there = published(out)
        assert "manifest.json" not in there or there in states
        rest = out / "building.partial"
        with monkeypatch.context() as patched:
            if (rest / "manifest.json").exists() and (rest / "command.json").exists():
                rests.add(tuple(sorted(path.name for path in rest.iterdir() if path.is_dir())))
                patched.setattr(build_module, "write_texts", None)  # all that is left is to move what is there
            build("beir", [beir], out, small)
        assert contents(out) == states[1], step
    assert len(rests) == 7  # before and between the six moves of three folders


def _full(path: Path, content: bytes) -> None:
    if path.name in ("tokenizer.json", "manifest.json"):
        raise OSError(errno.ENOSPC, "No space left on device")
    write_bytes(path, content)


def _no_utf_8(_: object) -> list[str]:
    return ["\udce9"]


@pytest.mark.parametrize(
    ("cause", "kept", "problem"),
    [
        (lambda beir, _: (beir / "corpus.jsonl").write_text("{"), contents, "corpus.jsonl:1: not JSON"),
        (lambda _, patch: patch.setattr(build_module, "write_bytes", _full), published, "No space left"),
        (lambda _, patch: patch.setattr(FORMATS["beir"], "remarks", _no_utf_8), published, "manifest.json: .* is kept"),
    ],
    ids=["bad input", "a disk that fills up at the end", "an invalid manifest"],
)
def test_a_failed_build_keeps_the_collection_that_was_there(
    beir: Path, small: Tokenizer, large: Tokenizer, tmp_path: Path, cause: Any, kept: Any, problem: str
) -> None:
    before = contents(build("beir", [beir], tmp_path / "out", small).directory)
    content = (beir / "corpus.jsonl").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        cause(beir, patch)
        with pytest.raises(InputError, match=problem):
            build("beir", [beir], tmp_path / "out", large)
    assert kept(tmp_path / "out") == before
    Collection.open(tmp_path / "out")
    (beir / "corpus.jsonl").write_bytes(content)
    assert build("beir", [beir], tmp_path / "out", large).tokenizer.fingerprint == large.fingerprint


def _killed(folder: Path, tokenizer: Path) -> Callable[[write_texts.TextRange], int]:
    return lambda task: os.kill(os.getpid(), signal.SIGKILL) or 0


def _disk_full(folder: Path, tokenizer: Path) -> Callable[[write_texts.TextRange], int]:
    def work(task: write_texts.TextRange) -> int:
        with whole_file(task.file):
            raise OSError(errno.ENOSPC, "No space left on device")

    return work


@pytest.mark.parametrize("stop", [_killed, _disk_full])
def test_a_killed_worker_and_a_full_disk_leave_the_finished_stages(
    beir: Path, small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Callable[..., Any]
) -> None:
    monkeypatch.setattr(write_texts, "TASK", 2)
    with monkeypatch.context() as patched:
        patched.setattr(write_texts, "tokenise", stop)
        with pytest.raises(StoppedError, match="a worker was killed|cannot write: No space left"):
            build("beir", [beir], tmp_path / "out", small, workers=2)
    monkeypatch.setattr(build_module, "write_texts", lambda *_, **__: pytest.fail("the texts are written again"))
    build("beir", [beir], tmp_path / "out", small)


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        *((name, [""], "raw: not a plain file; name the files themselves") for name in FILES_ALONE),
        ("pairs", ["train=pairs.jsonl", "dev=pairs.jsonl"], "pairs.jsonl: is named twice; name every file once"),
        ("pairs", ["pairs.jsonl", "../raw/pairs.jsonl"], "pairs.jsonl: is named twice; name every file once"),
    ],
)
def test_inputs_are_files_each_named_once(
    name: str, given: list[str], problem: str, small: Tokenizer, tmp_path: Path
) -> None:
    folder = write_files(tmp_path / "raw", {"pairs.jsonl": '{"query": "a", "document": "b"}\n'})
    with pytest.raises(InputError, match=problem):
        build(name, [at(folder, one) for one in given], tmp_path / "out", small)
    assert not (tmp_path / "out").exists()


def test_building_again_replaces_the_collection_alone(beir: Path, small: Tokenizer, large: Tokenizer) -> None:
    shutil.copy(small.path, beir / "tokenizer.json")  # the chosen tokenizer may be there already
    build("beir", [beir], beir, small)
    assert build("beir", [beir], beir, large).tokenizer.fingerprint == large.fingerprint
    own = tokenizer.load(beir / "tokenizer.json")
    build("beir", [beir], beir, own)  # its own tokenizer.json is read before it is replaced
    assert sorted(path.name for path in beir.iterdir()) == [
        "corpus", "corpus.jsonl", "manifest.json", "qrels", "queries", "queries.jsonl", "splits", "tokenizer.json",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["corpus/a.txt", "queries/a.txt", "splits/a.txt", "manifest.json", "tokenizer.json"])
def test_files_that_are_not_of_a_collection_are_kept(beir: Path, small: Tokenizer, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    with pytest.raises(InputError, match="exists, and is not a collection's: move it away, or name another --out"):
        build("beir", [beir], tmp_path / "out", small)
    assert contents(tmp_path / "out") == {name: b"{}"}


def test_an_input_that_the_collection_would_replace_is_kept(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    out = build("beir", [beir], tmp_path / "out", small).directory
    shutil.move(beir, out / "splits" / "raw")
    before = contents(out)
    with pytest.raises(InputError, match="corpus.jsonl: the collection would replace .*splits: move it"):
        build("beir", [out / "splits" / "raw"], out, small)
    assert contents(out) == before


def test_two_builds_of_one_folder_are_refused(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    reading, writing = os.pipe()
    if not (child := os.fork()):  # a lock belongs to a process
        with build_module._alone(tmp_path / "out"):
            os.write(writing, b"x")
            signal.pause()
    os.read(reading, 1)
    try:
        with pytest.raises(InputError, match="another process is making this collection"):
            build("beir", [beir], tmp_path / "out", small)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    build("beir", [beir], tmp_path / "out", small)


def test_verify_finds_a_flipped_bit_in_every_file(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    out = build("beir", [beir], tmp_path / "out", small).directory
    assert list(verify(out)) == []
    for path in (*out.rglob("*.npy"), out / "tokenizer.json"):
        content = path.read_bytes()
        flip(path)
        assert [line.split(":")[0] for line in verify(out)] == [str(path)]
        path.unlink()
        assert list(verify(out)) == [f"{path}: is missing"]
        path.write_bytes(content)
    arrays = sorted(out.rglob("*.npy"))
    edit(out, lambda manifest: manifest.update(arrays={}))
    assert list(verify(out)) == [f"{path}: is not in the manifest" for path in arrays]
    for path in arrays:
        path.unlink()
    with pytest.raises(InputError, match="cannot read"):
        list(verify(out))


def test_texts_of_a_collection_and_of_its_folder_are_the_same(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    expected = ["Foxes The quick brown fox.", "", "Dogs sleep.", "fox", "dog sleeps"]
    assert list(texts_of(beir)) == expected
    out = build("beir", [beir], tmp_path / "out", small).directory
    shutil.rmtree(beir)
    assert list(texts_of(out)) == expected


def test_special_tokens_in_texts_are_the_tokenizers(beir: Path, small: Tokenizer, tmp_path: Path) -> None:
    (beir / "queries.jsonl").write_text('{"_id": "1", "text": "fox [SEP] dog"}\n{"_id": "2", "text": "dog"}\n')
    as_text = build("beir", [beir], tmp_path / "text", small)
    as_token = build("beir", [beir], tmp_path / "token", small.splitting(False), workers=2)
    assert small.sep not in as_text.queries.tokens(0)
    assert as_token.queries.tokens(0).tolist().count(small.sep) == 1
    for made in (as_text, as_token):  # queries that are not of the collection are read likewise
        assert made.tokenizer.encode(["fox [SEP] dog"])[0].tolist() == made.queries.tokens(0).tolist()
    edit(tmp_path / "text", lambda manifest: manifest["tokenizer"].pop("split_special_tokens"))  # an older collection's
    assert Collection.open(tmp_path / "text").tokenizer.split_special_tokens
