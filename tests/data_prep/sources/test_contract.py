"""What every source must do, whatever its files: one suite over a sample of each; for `cleaned` see test_texts.py."""

import gzip
import json
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.bookcorpus import BOOKCORPUS
from deepsiam.data_prep.sources.document import Bad, BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.plain_text import TEXT
from deepsiam.data_prep.sources.reddit.utterances import LONGEST_LINE
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.sources.source import APPLE_DOUBLE, OF_A_MAC, File, Piece
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA
from tests.data_prep.sources.sound import sound
from tests.data_prep.sources.test_tar_stream import packed

FOX, DOG = "The fox jumps over the dog.", "The dog sleeps and does not see it jump."
ASKED = {"id": "p", "created_utc": 1, "title": FOX, "selftext": "", "author": "u"}
ANSWERED = {"id": "c", "link_id": "t3_p", "parent_id": "t3_p", "created_utc": 2, "body": DOG, "author": "u"}
PAGE = (
    "<mediawiki><page><title>T</title><ns>0</ns><id>7</id><revision><text>{}\n\n{}</text></revision></page></mediawiki>"
)
LINK = f"<page><title>U</title><ns>0</ns><id>8</id><revision><text>[[T|{FOX}]]</text></revision></page></mediawiki>"


class Sample(NamedTuple):
    """A file of one document, FOX and DOG, by a name that is found in a folder; what is said of a folder without."""

    name: str
    content: bytes
    missing: str
    empty: Dropped | str = " is empty; get it again, or leave it out"  # a record, or an error


NAME_FILES = "not a plain file; name the files themselves"
SAMPLES = {
    "wikipedia": Sample(
        "a-pages-articles.xml",
        PAGE.format(FOX, DOG).encode(),
        "no wiki_NN, .parquet or pages-articles .xml file in this folder",
    ),
    "wikipedia-links": Sample(
        "a-pages-articles.xml",
        PAGE.format("", DOG).replace("</mediawiki>", LINK).encode(),
        "no wiki_NN, .parquet or pages-articles .xml file in this folder",
    ),
    "bookcorpus": Sample("a.txt", f"{FOX}\n\n{DOG}".encode(), "no .txt", Dropped("empty")),
    "bookcorpus-sentences": Sample("a.txt", f"{FOX}\n{DOG}\n".encode(), NAME_FILES),
    "reddit": Sample(
        "RC_2020-01", f"{json.dumps(ASKED)}\n{json.dumps(ANSWERED)}".encode(), "no RC_* or RS_* file in this folder"
    ),
    "text": Sample("a.txt", f"{FOX}\n\n{DOG}".encode(), "no .txt file in this folder", Dropped("empty")),
    "jsonl": Sample("a.jsonl", json.dumps({"text": f"{FOX}\n\n{DOG}"}).encode(), NAME_FILES),
    "python": Sample("a.py", f'"""{FOX}\n\n{DOG}\n"""'.encode(), "no .py file in this folder", Dropped("empty")),
    "pairs": Sample(
        "a.jsonl", json.dumps({"query": FOX, "document": DOG}).encode(), "no .jsonl, .parquet, .csv, .tsv or .tar file"
    ),
    "webdataset": Sample("a.tar", packed({"7.txt": f"{FOX}\n\n{DOG}".encode()}), "no .tar file in this folder"),
}
every_source = pytest.mark.parametrize("source", SAMPLES)


def written(folder: Path, source: str, suffix: str = "") -> Path:
    """Write the sample of a source, compressed if the suffix says so."""
    name, content, *_ = SAMPLES[source]
    path = folder / f"{name}{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    return path


def test_every_source_has_a_sample() -> None:
    assert SAMPLES.keys() == SOURCES.keys() - {"cleaned"}


@every_source
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_sample_is_read_from_a_file_and_a_folder(tmp_path: Path, source: str, suffix: str) -> None:
    path = written(tmp_path, source, suffix)
    (tmp_path / "README").write_text("Not looked at.")
    for place in [path] if SAMPLES[source].missing == NAME_FILES else [path, tmp_path]:
        read = sound(SOURCES[source].documents([place]))
        (document,) = (item for item in read if not isinstance(item, Dropped))
        assert isinstance(document, Document)
        assert document.segments == (FOX, DOG)


@every_source
def test_a_file_or_folder_without_records_is_named(tmp_path: Path, source: str) -> None:
    _, _, missing, empty = SAMPLES[source]
    with pytest.raises(InputError, match="nowhere: cannot read"):
        list(SOURCES[source].documents([tmp_path / "nowhere"]))
    with pytest.raises(InputError) as refusal:
        list(SOURCES[source].documents([tmp_path]))
    assert str(refusal.value).startswith(f"{tmp_path}: {missing}")
    path = written(tmp_path, source)
    path.write_bytes(b"")
    if isinstance(empty, Dropped):
        assert list(SOURCES[source].documents([path])) == [empty]
        return
    assert refusals(source, path) == [f"{path}:{empty}"]


def refusals(source: str, path: Path) -> list[str]:
    """Return why a file is refused, or its records are bad."""
    try:
        return [f"{bad.file}: {bad.reason}" for bad in SOURCES[source].documents([path]) if isinstance(bad, Bad)]
    except InputError as error:
        return [str(error)]


@every_source
def test_a_file_that_is_cut_off_is_named_with_the_byte(tmp_path: Path, source: str) -> None:
    path = written(tmp_path, source, ".gz")
    path.write_bytes(path.read_bytes()[:-9])
    (said,) = refusals(source, path)
    assert said.startswith(f"{path}: its gzip data is cut off at byte {path.stat().st_size:,}")


@pytest.mark.parametrize("error", [BadRecordError, ValueError])
def test_only_what_a_reader_calls_bad_is_bad(tmp_path: Path, error: type[ValueError]) -> None:
    """Any other error is a bug, and shows its traceback."""

    def read(*_: object) -> list[Document]:
        raise error("lacks a title")

    file, piece = File(tmp_path / "a", "a"), Piece("line 3", 1, "text")
    items = replace(TEXT, read=read).items(file, piece, {})
    if error is BadRecordError:
        assert list(items) == [Bad(str(tmp_path / "a"), "line 3", "lacks a title")]
    else:
        with pytest.raises(ValueError, match="lacks a title"):
            list(items)


@every_source
def test_files_of_one_name_have_different_names_and_workers_get_what_was_cut(tmp_path: Path, source: str) -> None:
    path = written(tmp_path, source)
    kind = SOURCES[source]
    files = list(kind.find([path, path, path]))
    assert [file.name.partition("#")[2] for file in files] == ["", "2", "3"]
    assert len({file.name.partition("#")[0] for file in files}) == 1
    pieces = list(kind.pieces(files[0], kind.choices()))
    assert pieces
    assert pickle.loads(pickle.dumps((files, pieces))) == (files, pieces)
    numbered = path.rename(f"{path}#2")  # a name that looks like that of a second file
    path.touch()
    for paths in ([path, path, numbered, numbered], [numbered, path, path, numbered]):
        assert len({file.name for file in kind.find(paths)}) == 4


@every_source
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")), st.data())
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, source: str, added: bytes, data: st.DataObject
) -> None:
    name, content, *_ = SAMPLES[source]
    path = tmp_path_factory.getbasetemp() / f"fuzzed {name}"
    at = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:at] + added + content[at + data.draw(st.integers(0, 30)) :])
    said = f"{path}: "
    try:
        sound(SOURCES[source].documents([path]))
    except InputError as error:
        said = str(error)
    assert said.startswith(f"{path}: ")
    assert said.isprintable()


LINES: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {  # two sound lines, and what is chosen
    "jsonl": ([{"text": FOX, "id": 1}, {"text": DOG, "id": 2}], {"id": "id"}),
    "pairs": ([{"query": FOX, "document": DOG}] * 2, {}),
    "reddit": ([ASKED, ANSWERED], {}),
}
BAD_LINES = [
    ("jsonl", b"{'text': 'fox'}", "not JSON (Expecting property name"),
    ("jsonl", b'{"text": "fox', "not JSON (Unterminated string"),
    ("jsonl", b"[" * 100_000, "not JSON ("),
    ("jsonl", b'{"text": ' + b"1" * 5000 + b"}", "not JSON ("),
    ("jsonl", b'{"text": "Caf\xe9"}', "not UTF-8 at byte 13"),
    ("jsonl", b'["text"]', "not a JSON object"),
    ("jsonl", b'{"text": ["fox"], "id": 1}', "field 'text' is missing or not a string"),
    ("jsonl", b'{"text": "fox"}', "field 'id' is missing or neither a string nor a whole number"),
    ("jsonl", b'{"text": "fox", "id": 1.5}', "field 'id' is missing or neither a string nor a whole number"),
    ("jsonl", b'{"text": "fox", "id": true}', "field 'id' is missing or neither a string nor a whole number"),
    ("jsonl", b'{"text": "fox", "id": "\\n"}', "field 'id' is blank or has more than 200 characters"),
    ("jsonl", b'{"text": "fox", "id": "%s"}' % (b"x" * 201), "field 'id' is blank or has more"),
    ("jsonl", b'{"text": "fox \\ud83e", "id": 1}', "half of a surrogate pair, which is not a character"),
    ("jsonl", b'{"text": "fox", "id": "\\udd8a"}', "half of a surrogate pair, which is not a character"),
    ("pairs", b'{"query": "fox"}', "field 'document' is missing or not a string"),
    ("pairs", b'{"query": "fox", "document": ["dog"]}', "field 'document' is missing or not a string"),
    ("pairs", b'{"query": "fox", "document": "\\ud83e"}', "half of a surrogate pair, which is not a character"),
    ("reddit", b'{"body": "cut o', "not JSON"),
    ("reddit", b"{}", "neither a comment"),
    ("reddit", b'{"body": 1, "title": null}', "neither a comment"),
    ("reddit", b'{"title": "x", "created_utc": 1}', "id is missing"),
    ("reddit", b'{"title": "x", "id": "../x", "created_utc": 1}', "id is missing or not of Reddit's kind"),
    ("reddit", b'{"title": "x", "id": "t1_x", "created_utc": 1}', "id is missing or not of Reddit's kind"),
    ("reddit", b'{"body": "x", "id": "x", "created_utc": 1}', "link_id is missing"),
    ("reddit", b'{"title": "x", "id": "x"}', "created_utc is missing"),
    ("reddit", b'{"title": "x", "id": "x", "created_utc": NaN}', "created_utc is missing"),
    ("reddit", b'{"title": "x", "id": "x", "created_utc": 1e999}', "created_utc is missing"),
    ("reddit", b'{"title": "' + b"x" * LONGEST_LINE + b'"}', "longer than 4,194,304 bytes"),
]


@pytest.mark.parametrize(("source", "line", "reason"), BAD_LINES, ids=[f"{row[0]}: {row[2]}" for row in BAD_LINES])
def test_a_bad_line_is_named_and_the_others_are_read(tmp_path: Path, source: str, line: bytes, reason: str) -> None:
    records, choices = LINES[source]
    path, (first, last) = tmp_path / "a.jsonl", [json.dumps(record).encode() for record in records]

    def read(*lines: bytes) -> tuple[list[tuple[str, ...]], list[Bad]]:
        path.write_bytes(b"\n".join(lines))
        items = list(SOURCES[source].documents([path], **choices))
        texts = [item.segments for item in items if isinstance(item, Document)]
        return texts, [item for item in items if isinstance(item, Bad)]

    texts, (bad,) = read(b"", first, line, last)
    assert (bad.file, bad.where) == (str(path), "line 3")
    assert bad.reason.startswith(reason)
    assert len(bad.reason) < 200
    assert texts == read(first, last)[0]


def test_linked_folders_are_read_once_whatever_they_lead_to(tmp_path: Path) -> None:
    elsewhere, given = tmp_path / "elsewhere", tmp_path / "given"
    for folder in (elsewhere / "deeper", given / "own"):
        folder.mkdir(parents=True)
    (elsewhere / "deeper" / "a.txt").write_text(FOX)
    (given / "own" / "b.txt").write_text(DOG)
    (given / "linked").symlink_to(elsewhere)
    (given / "again").symlink_to(given / "own")
    (given / "own" / "up").symlink_to(given)
    assert [file.name for file in TEXT.find([given])] == ["text/linked/deeper/a.txt", "text/own/b.txt"]


def test_a_macs_files_are_left_out_and_counted(tmp_path: Path) -> None:
    for name in ("._book.txt", "._wiki_00"):
        (tmp_path / name).write_bytes(APPLE_DOUBLE + b"\0\2\0\0Mac OS X        \0\2\0\0\0\x09")
    for name in ("._odd.txt", "book.txt"):
        (tmp_path / name).write_text(FOX)
    odd, book = Document("text/._odd.txt", (FOX,)), Document("text/book.txt", (FOX,))
    assert list(TEXT.documents([tmp_path])) == [OF_A_MAC, odd, book]
    assert list(WIKIPEDIA.documents([tmp_path / "._wiki_00"])) == [OF_A_MAC]
    with tarfile.open(tmp_path / "books.tar", "w") as tar:
        for name in ("._book.txt", "book.txt"):
            tar.add(tmp_path / name, name)
    assert [isinstance(item, Document) for item in BOOKCORPUS.documents([tmp_path / "books.tar"])] == [False, True]
