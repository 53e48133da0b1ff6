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


def test_near_duplicates_are_removed_where_parts_are_joined(tok: Path, tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(9))
    part = ["jsonl", file, "--out", tmp_path / "out", "--text-only", "--part", "1/2", "--near-duplicates", 0.8]
    assert refusal(capfd, *part).startswith("--near-duplicates: give it to the second step, the command cleaned")


def test_text_in_the_folder_that_is_read_is_not_read_again(tok: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    records = [{"query": text, "document": text[::-1]} for text in raw.texts(9)]
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
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
    raw.run(
        "wikipedia", raw.write_wikipedia(tmp_path / "a.xml", [page, page]), "--out", tmp_path / "out", "--text-only"
    )
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
    message = refusal(capfd, "jsonl", file, "--out", tmp_path / "1", "--text-only", "--shards", 5)
    assert message.startswith(f"{tmp_path}/1: was made from other input or with other options")


def test_a_folder_text_of_the_user_s_own_stays(tmp_path: Path, capfd: Capture) -> None:
    notes = tmp_path / "project" / "text" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("Mine.\n\nStill mine.")
    for file in (raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(3)), notes):
        source = "text" if file == notes else "jsonl"
        message = refusal(capfd, source, file, "--out", tmp_path / "project", "--text-only")
        assert message.startswith(f"{notes.parent}: exists, and no preparation made it; choose another --out")
    assert [path.name for path in notes.parent.iterdir()] == [notes.name]


def test_parts_of_text_make_one_data_set(tok: Path, tmp_path: Path) -> None:
    some = raw.texts(60)
    file = raw.write_jsonl(tmp_path / "a.jsonl", [*some, *some[:9]])
    for part in (1, 2, 3):
        raw.run("jsonl", file, "--out", tmp_path / f"part{part}", "--text-only", "--part", f"{part}/3")
    parts = [tmp_path / f"part{part}" for part in (3, 1, 2)]
    raw.run("cleaned", *parts, "--out", tmp_path / "merged", "--tokenizer", tok, "--shards", 2)
    raw.run("jsonl", file, "--out", tmp_path / "whole", "--tokenizer", tok, "--shards", 2)
    assert raw.ids(tmp_path / "merged") == raw.ids(tmp_path / "whole")


def test_what_does_not_go_together_is_refused(tmp_path: Path, tok: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(3))
    message = refusal(capfd, "jsonl", file, "--out", tmp_path / "out", "--text-only", "--held-out", 0.1)
    assert message == "--text-only: --tokenizer and --held-out belong to the second step, the command cleaned"
    message = refusal(capfd, "cleaned", tmp_path, "--out", tmp_path / "out")
    assert message.startswith(
        f"{tmp_path}: no cleaned text here (texts.json); name the --out of a command with --text-on"
    )
    assert not (tmp_path / "out").exists()
    raw.run("jsonl", file, "--out", tmp_path / "prose", "--text-only")
    threads = raw.write_reddit(tmp_path / "dumps", [raw.texts(4, number, 1) for number in range(3)])
    raw.run("reddit", threads, "--out", tmp_path / "talk", "--text-only")
    message = refusal(
        capfd, "cleaned", tmp_path / "prose", tmp_path / "talk", "--out", tmp_path / "out", "--tokenizer", tok
    )
    assert message.startswith("some of the texts are dialogues and some are not; prepare them apart")
    assert len({file.name for file in CLEANED.find([tmp_path / "prose", tmp_path / "talk" / "text"])}) == 2


@pytest.mark.parametrize(
    ("number", "damage", "expected"),
    [
        (0, lambda path: path.write_bytes(b""), "is damaged (its size or SHA-256 is not the recorded one)"),
        (1, flip, "its SHA-256 is not the one in texts.json (damaged)"),
        (0, Path.unlink, "is missing"),
        (9, Path.touch, "is not listed in texts.json"),
    ],
    ids=["cut off", "changed", "removed", "foreign"],
)
def test_damaged_text(
    number: int, damage: Callable[[Path], object], expected: str, tok: Path, tmp_path: Path, capfd: Capture
) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(9))
    raw.run("jsonl", file, "--out", tmp_path / "out", "--text-only", "--shards", 2)
    bad = tmp_path / "out" / "text" / f"text-{number:06d}.jsonl.gz"
    damage(bad)
    message = refusal(capfd, "cleaned", tmp_path / "out", "--out", tmp_path / "out", "--tokenizer", tok)
    assert message.startswith(f"{bad}: {expected}")
    assert not (tmp_path / "out" / "shards").exists()
    if number < 9:  # only the listed files are verified and exported
        assert main(["verify", str(tmp_path / "out")]) == 2
        assert f"{bad}: is {'missing' if damage is Path.unlink else 'damaged'}" in capfd.readouterr().err
        for how in (["--jsonl"], ["--webdataset", "--out", tmp_path / "tars"]):
            assert f"{bad}: " in raw.refused(capfd, "export", tmp_path / "out", *how)
        assert not (tmp_path / "tars").exists()


def test_a_forgotten_part_of_the_text_is_missed(tok: Path, tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(9))
    parts = [tmp_path / f"part{number}" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        raw.run("jsonl", file, "--out", part, "--text-only", "--part", f"{number}/2")
    message = refusal(capfd, "cleaned", parts[1], "--out", tmp_path / "out", "--tokenizer", tok)
    assert message == f"{parts[1]}/text and others: part 1/2 is missing; name every part once"
    shutil.copytree(parts[1], tmp_path / "copy")
    message = refusal(capfd, "cleaned", *parts, tmp_path / "copy", "--out", tmp_path / "out", "--tokenizer", tok)
    assert message == f"{parts[0]}/text and others: part 2/2 is named twice; name every part once"


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
