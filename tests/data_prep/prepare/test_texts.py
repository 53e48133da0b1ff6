"""Cleaned text: what `--text-only` writes, which gives the same shards as the raw input."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import output, texts
from deepsiam.data_prep.sources import cleaned
from deepsiam.data_prep.sources.cleaned import CLEANED, document
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.sources.plain_text import Line
from tests.data_prep import raw
from tests.data_prep.raw import Capture, contents, flip, refusal


def lines(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in texts.lines(out / "text")]


segment = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)
documents = st.lists(segment, min_size=1, max_size=4).flatmap(
    lambda segments: st.builds(
        Document,
        id=st.text(min_size=1),
        segments=st.just(tuple(segments)),
        headings=st.sets(st.integers(0, len(segments) - 1)).map(sorted).map(tuple),
        context=st.integers(0, len(segments) - 1),
        group=st.text(),
        title=st.text(),
    )
)


@given(documents)
def test_a_line_is_read_back_as_the_same_document(some: Document) -> None:
    line = texts.line(some, "wikipedia")
    assert line.count("\n") == 1
    assert document(Line(1, line.encode("utf-8", "surrogatepass"))) == some


@given(
    st.binary()
    | st.dictionaries(st.sampled_from(["id", "text", "metadata"]), st.text() | st.just({})).map(
        lambda record: json.dumps(record).encode()
    )
)
def test_any_other_line_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="^(not |lacks |metadata)"):
        document(Line(1, content))


def test_the_first_step_typed_again_keeps_what_the_second_has_done(tok: Path, tmp_path: Path, capfd: Capture) -> None:
    file, out = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(9)), tmp_path / "out"
    first = ["jsonl", file, "--out", out, "--text-only"]
    raw.run(*first)
    (out / ".partial" / "written").mkdir(parents=True)
    (out / ".partial" / "written" / "done").write_text("hours of work")
    raw.run(*first)
    assert (out / ".partial" / "written" / "done").read_text() == "hours of work"
    (out / ".partial" / output.OF_TEXT).touch()  # as the first step leaves it, if it is killed at its end
    raw.run(*first)
    assert not (out / ".partial").exists()


def test_text_in_the_folder_that_is_read_is_not_read_again(tok: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    raw.write_jsonl(folder / "a.jsonl", [{"query": text, "document": text[::-1]} for text in raw.texts(9)])
    raw.run("pairs", folder, "--out", folder / "out", "--text-only")
    raw.run("pairs", folder, "--out", folder / "out", "--tokenizer", tok)
    assert raw.source_of(folder / "out")["spooled"]["documents"] == 9


@pytest.mark.parametrize("source", ["wikipedia", "reddit"])
def test_two_steps_make_the_shards_of_one(source: str, tok: Path, tmp_path: Path) -> None:
    if source == "wikipedia":
        pages = [f"{text}\n\n== History ==\n{text[::-1]}" for text in raw.texts(40)]
        dumps = raw.write_wikipedia(tmp_path / "a-pages-articles.xml", pages)
    else:
        threads = raw.texts(120, sentences=1)
        dumps = raw.write_reddit(tmp_path / "dumps", [threads[4 * n : 4 * n + 4] for n in range(30)])
    options = ["--tokenizer", tok, "--held-out", 0.2, "--shards", 3]
    raw.run(source, dumps, "--out", tmp_path / "one", *options)
    raw.run(source, dumps, "--out", tmp_path / "text", "--text-only", workers=2)
    assert not (tmp_path / "text" / "shards").exists()
    raw.run("cleaned", tmp_path / "text", "--out", tmp_path / "text", *options)
    for split in ("shards", "held_out"):
        one, two = (contents(tmp_path / name / split) for name in ("one", "text"))
        del one["manifest.json"], two["manifest.json"]
        assert one == two
        assert one
    assert raw.source_of(tmp_path / "text")["dialogues"] is (source == "reddit")


def test_the_text_is_as_it_was_before_tokens(tmp_path: Path, capfd: Capture) -> None:
    page = "The [[Fox]] ran to [[Paris]]. It is 3 km away!\n== Its Life ==\nIt lives."
    dump = raw.write_wikipedia(tmp_path / "a.xml", [page, page])
    raw.run("wikipedia", dump, "--out", tmp_path / "out", "--text-only")
    assert "1 files of cleaned text" in capfd.readouterr().out
    assert lines(tmp_path / "out") == [
        {
            "id": "wikipedia/1",
            "source": "wikipedia",
            "text": "The Fox ran to Paris.\nIt is 3 km away!\nIts Life\nIt lives.",
            "metadata": {"group": "", "headings": [2], "context": 0, "title": "T1"},
        }
    ]
    assert main(["export", str(tmp_path / "out"), "--jsonl"]) == 0
    assert json.loads(capfd.readouterr().out) == lines(tmp_path / "out")[0]
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert "every file of cleaned text is whole" in capfd.readouterr().out


def test_text_does_not_depend_on_workers_and_resumes(tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(60))
    for workers in (1, 2):
        raw.run("jsonl", file, "--out", tmp_path / str(workers), "--text-only", "--shards", 4, workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert len(cleaned.load(tmp_path / "1" / "text").files) == 4
    capfd.readouterr()
    raw.run("jsonl", file, "--out", tmp_path / "1", "--text-only", "--shards", 4)
    assert capfd.readouterr().out == f"{tmp_path}/1: complete already, nothing to do\n"


def test_parts_of_text_make_one_data_set(tok: Path, tmp_path: Path) -> None:
    some = raw.texts(60)
    file = raw.write_jsonl(tmp_path / "a.jsonl", [*some, *some[:9]])
    one, two, three = raw.parts(tmp_path, 3, "jsonl", file, "--text-only")
    raw.run("cleaned", three, one, two, "--out", tmp_path / "merged", "--tokenizer", tok, "--shards", 2)
    raw.run("jsonl", file, "--out", tmp_path / "whole", "--tokenizer", tok, "--shards", 2)
    assert raw.ids(tmp_path / "merged") == raw.ids(tmp_path / "whole")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of cleaned text; read only."""
    folder = tmp_path_factory.mktemp("text")
    file = raw.write_jsonl(folder / "a.jsonl", raw.texts(9))
    raw.run("jsonl", file, "--out", folder / "out", "--text-only", "--shards", 2)
    return folder / "out"


@pytest.mark.parametrize(
    ("number", "damage", "expected", "verified"),
    [
        (0, lambda path: path.write_bytes(b""), "is damaged (its size or SHA-256 is not the recorded one)", "damaged"),
        (1, flip, "its SHA-256 is not the one in texts.json (damaged)", "damaged"),
        (0, Path.unlink, "is missing", "missing"),
        (9, Path.touch, "is not listed in texts.json", ""),  # only the listed files are verified and exported
    ],
    ids=["cut off", "changed", "removed", "foreign"],
)
def test_damaged_text(
    number: int,
    damage: Callable[[Path], object],
    expected: str,
    verified: str,
    text: Path,
    tok: Path,
    tmp_path: Path,
    capfd: Capture,
) -> None:
    out = Path(shutil.copytree(text, tmp_path / "out"))
    bad = out / "text" / f"text-{number:06d}.jsonl.gz"
    damage(bad)
    assert refusal(capfd, "cleaned", out, "--out", out, "--tokenizer", tok).startswith(f"{bad}: {expected}")
    assert not (out / "shards").exists()
    if verified:
        assert main(["verify", str(out)]) == 2
        assert f"{bad}: is {verified}" in capfd.readouterr().err
        for how in (["--jsonl"], ["--webdataset", "--out", tmp_path / "tars"]):
            assert f"{bad}: " in raw.refused(capfd, "export", out, *how)
        assert not (tmp_path / "tars").exists()


def test_folders_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for place in ("a", "b"):
        file = raw.write_jsonl(tmp_path / f"{place}.jsonl", raw.texts(3))
        raw.run("jsonl", file, "--out", tmp_path / place / "news", "--text-only")
    files = CLEANED.find([tmp_path / place / "news" for place in ("a", "b")])
    assert [file.name for file in files] == [f"cleaned/news/text-000000.jsonl.gz{number}" for number in ("", "#2")]


@pytest.mark.parametrize("key", ["id", "text", "group", "title"])
def test_half_a_surrogate_pair_is_bad(key: str) -> None:
    metadata = {"headings": [], "context": 0, "group": "", "title": ""}
    record = {"id": "a", "text": "b", "metadata": metadata}
    (record if key in record else metadata)[key] = "\ud800"  # type: ignore[index]
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        document(Line(1, json.dumps(record).encode()))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "source": {}, "files": []}'])
def test_a_damaged_list_of_texts_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "texts.json").write_text(content)
    with pytest.raises(InputError, match=f"^{tmp_path}/texts.json: .*; prepare the text again$"):
        cleaned.load(tmp_path)
