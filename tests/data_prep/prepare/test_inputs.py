"""The beginning of the input alone: with --limit, or the sound part of a truncated file."""

import bz2
import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import webdataset

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import inputs
from deepsiam.data_prep.sources.source import File
from tests.data_prep import raw
from tests.data_prep.raw import Capture, contents, source_of
from tests.data_prep.server import cut_short, serving, status


@pytest.fixture
def files(tmp_path: Path) -> list[File]:
    files = []
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name * 5)
        files.append(File(tmp_path / name, f"text/{name}"))
    return files


def test_a_url_is_downloaded_once_and_keeps_its_name(tmp_path: Path, files: list[File]) -> None:
    folder = tmp_path / "downloads"
    with serving(tmp_path) as server:
        urls = [f"{server.url}/a", f"{server.url}/b", f"{server.url}/../a"]
        for _ in range(2):
            paths = inputs.local([*urls, str(files[2].path)], folder)
            assert [path.name for path in paths] == ["a", "b", "a", "c"]
            assert [path.read_text() for path in paths] == ["aaaaa", "bbbbb", "aaaaa", "ccccc"]
        assert server.requests == {"a": 2, "b": 1}
        signed = [f"{server.url}/a?id=5&X-Amz-Signature={key}&X-Amz-Date={key}#x" for key in ("one", "two")]
        (first,), (second,) = (inputs.local([url], folder) for url in signed)  # signed anew, it is the same file
        assert (first, first.name, first.read_text(), server.requests["a"]) == (second, "a", "aaaaa", 3)
        assert inputs.local_paths([f"{server.url}/a?id=6"], folder) != [first]
    assert len(set(paths)) == 4
    assert inputs.local_paths(urls, folder) == paths[:3]
    assert not list(folder.rglob("*.partial"))


def test_output_inside_the_input_is_not_read(tmp_path: Path, capfd: Capture) -> None:
    for name in ("a", "b"):
        with webdataset.TarWriter(str(tmp_path / f"{name}.tar")) as tar:
            for number, text in enumerate(raw.texts(20, ord(name))):
                tar.write({"__key__": str(number), "txt": text})
    (tmp_path / "in").mkdir()
    (tmp_path / "a.tar").rename(tmp_path / "in" / "a.tar")
    with serving(tmp_path) as server:
        given = "webdataset", tmp_path / "in", f"{server.url}/b.tar"  # b.tar is downloaded to the work folder
        for expected in ("  40 documents", "complete already"):
            raw.run(*given, "--out", tmp_path / "in" / "out")
            assert expected in capfd.readouterr().out


def test_a_data_set_of_a_url_is_that_of_the_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(50))
    raw.run("jsonl", file, "--out", tmp_path / "local")
    raw.run("jsonl", f"file://{file}", "--out", tmp_path / "file")
    with serving(tmp_path) as server:
        server.misbehaviour["a.jsonl"] = [status(503), cut_short]  # so it is tried again
        for _ in range(2):  # the second time it is complete, and nothing is downloaded
            raw.run("jsonl", f"{server.url}/a.jsonl", "--out", tmp_path / "http")
        assert server.requests["a.jsonl"] == 3
    assert contents(tmp_path / "http") == contents(tmp_path / "file") == contents(tmp_path / "local")
    assert not (tmp_path / "http" / ".partial").exists()


def test_downloads_are_kept_until_the_end(tmp_path: Path, capfd: Capture) -> None:
    raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(5))
    with serving(tmp_path) as server:
        raw.refusal(capfd, "jsonl", f"{server.url}/a.jsonl", "--out", tmp_path / "out", "--vocab-size", 5)
        raw.run("jsonl", f"{server.url}/a.jsonl", "--out", tmp_path / "out")
        message = raw.refusal(capfd, "jsonl", f"{server.url}/no.jsonl", "--out", tmp_path / "none")
        assert message.startswith(f"{server.url}/no.jsonl: ")
        assert server.requests == {"a.jsonl": 1, "no.jsonl": 1}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x/y", "ftp://x/y: not an address"),
        ("https://x/?sig=secret", r"^https://x/\?…: names no file"),
        ("SERVER/no?sig=secret", r"/data/no\?…: not found"),
        ("SERVER/no", "/data/no: not found"),
        ("file:///none/no", "file:///none/no: not found"),
    ],
)
def test_a_bad_or_missing_url_is_named(tmp_path: Path, url: str, said: str) -> None:
    with serving(tmp_path) as server, pytest.raises(InputError, match=said):
        inputs.local([url.replace("SERVER", server.url)], tmp_path / "in")
    assert not [path for path in (tmp_path / "in").rglob("*") if path.is_file()]


def test_the_record_has_every_file_and_a_hash_of_all(files: list[File], monkeypatch: pytest.MonkeyPatch) -> None:
    record = inputs.record(files)
    assert (record["number"], record["bytes"]) == (3, 15)
    assert record["files"] == [
        {"name": file.name, "bytes": 5, "sha256": hashlib.sha256(file.path.read_bytes()).hexdigest()} for file in files
    ]
    files[0].path.write_text("other")
    assert inputs.record(files)["sha256"] != record["sha256"]
    monkeypatch.setattr(inputs, "MOST_LISTED", 2)
    many = inputs.record(files)
    assert (many["number"], many["bytes"], many["files"]) == (3, 15, [])
    assert len(many["sha256"]) == 64


@pytest.mark.parametrize("most", [2, 3], ids=["too many to list", "listed"])
def test_equal_files_are_known(tmp_path: Path, files: list[File], monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(inputs, "MOST_LISTED", most)
    source = {"inputs": inputs.record(files)}
    downloads, made = tmp_path / "downloads", tmp_path / "manifest.json"
    made.write_text("{}")
    os.utime(files[2].path)  # written again, as it was
    assert inputs.same(source, files, downloads, made)
    assert not inputs.same(source, files[:2], downloads, made)
    assert not inputs.same(source, [*files, files[0]], downloads, made)
    assert not inputs.same({}, files, downloads, made)
    not_there = [*files[:2], File(downloads / "c", "text/c")]
    assert inputs.same(source, not_there, downloads, made)
    if most == 3:
        assert not inputs.same(source, [*files[:2], File(downloads / "d", "text/d")], downloads, made)
        assert not inputs.same(source, files[::-1], downloads, made)
    content, status = files[1].path.read_bytes(), files[1].path.stat()
    files[1].path.write_bytes(b"other")  # as long as before
    os.utime(files[1].path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a copy that keeps the time would
    assert not inputs.same(source, files, downloads, made)
    files[1].path.write_bytes(content)
    assert inputs.same(source, files, downloads, made)
    files[1].path.write_text("longer than before")
    assert not inputs.same(source, files, downloads, made)
    with pytest.raises(InputError, match="gone: cannot read: No such file"):
        inputs.same(source, [File(tmp_path / "gone", "text/a")], downloads, made)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": lambda content: bz2.compress(content, 1),
    ".gz": gzip.compress,
    "": bytes,
}


def names(out: Path) -> set[str]:
    return {document.id for document in raw.documents(out)}


def test_the_first_records_of_the_files_are_read_and_no_more(tmp_path: Path) -> None:
    files = [raw.write_jsonl(tmp_path / f"{n}.jsonl", raw.texts(15, seed)) for seed, n in enumerate("ab")]
    files.append(tmp_path / "c.jsonl.gz")
    files[2].write_bytes(gzip.compress(raw.jsonl(10, 2))[:-20])
    raw.run("jsonl", *files, "--out", tmp_path / "out", "--limit", 20, workers=3)
    ids = [f"jsonl/a.jsonl/{n}" for n in range(1, 16)] + [f"jsonl/b.jsonl/{n}" for n in range(1, 6)]
    assert names(tmp_path / "out") == set(ids)
    source = source_of(tmp_path / "out")
    assert source["options"]["limit"] == 20
    assert [file["sha256"] for file in source["inputs"]["files"]] == [None] * 3  # the files were not read


def test_parts_of_a_trial_make_the_whole_of_it(tok: Path, tmp_path: Path) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(60))
    whole = raw.agree(tmp_path, "jsonl", file, "--limit", 41, "--tokenizer", tok, numbers=[2])
    assert len(raw.documents(whole)) == 41


@pytest.mark.parametrize(("suffix", "workers"), [("", 1), (".bz2", 1), (".gz", 3)])
def test_what_is_sound_of_a_truncated_file_is_used(tmp_path: Path, capfd: Capture, suffix: str, workers: int) -> None:
    dump = raw.write_wikipedia(tmp_path / "whole.xml", raw.texts(100, sentences=40)).read_bytes()
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
    assert 30 <= sound < 100
    assert names(tmp_path / "out") == {f"wikipedia/{n}" for n in (*range(1, sound + 1), *range(1000, 1005))}
    assert source_of(tmp_path / "out")["cut_off"] == {f"wikipedia/{file.name}": sound}
    assert f"wikipedia/{file.name} is cut off: the {sound} records before that are used" in capfd.readouterr().err
    before = contents(tmp_path / "out")
    raw.run("wikipedia", file, other, "--out", tmp_path / "out", "--accept-truncated")  # complete already
    assert contents(tmp_path / "out") == before


def test_no_sound_page_is_lost(tmp_path: Path) -> None:
    dump = raw.write_wikipedia(tmp_path / "whole.xml", raw.texts(100)).read_bytes()
    content = gzip.compress(dump, 0)  # stored, not compressed: a byte of the file is a byte of the dump
    cut = content.index(b"<id>71</id>")
    file = tmp_path / "pages-articles.xml.gz"
    file.write_bytes(content[:cut])
    raw.run("wikipedia", file, "--out", tmp_path / "out", "--accept-truncated")
    assert names(tmp_path / "out") == {f"wikipedia/{number}" for number in range(1, 71)}
