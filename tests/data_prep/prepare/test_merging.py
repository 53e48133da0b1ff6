"""Merged parts of a data set are byte for byte what one machine makes; incomplete or foreign parts are refused."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.prepare import output
from tests.data_prep import raw
from tests.data_prep.forge import edit
from tests.data_prep.raw import Capture, contents, flip, near_copy

NEAR = ["--near-duplicates", 0.8]


@pytest.fixture(params=["exact", "near"])
def near(request: pytest.FixtureRequest) -> list[object]:
    """Return the options that decide which duplicates are removed."""
    if request.param == "exact":
        return []
    request.getfixturevalue("datasketch")
    return NEAR


def repeated(number: int) -> list[str]:
    """Return texts with exact copies, copies in other case, and near-duplicates."""
    texts = raw.texts(number, sentences=10)
    return [
        *texts,
        *texts[:5],
        *map(str.upper, texts[3:8]),
        *map(near_copy, texts[5:20]),
        *map(near_copy, texts[6:12]),
        "Short one.",
    ]


@pytest.mark.parametrize("wanted", [[], ["--keep-duplicates"], ["--held-out", 0.3, "--shards", 4]], ids=str)
def test_parts_of_json_lines_merge(tok: Path, tmp_path: Path, near: list[object], wanted: list[object]) -> None:
    files = [raw.write_jsonl(tmp_path / f"{index}.jsonl", repeated(50)[index::3]) for index in range(3)]
    raw.agree(tmp_path, "jsonl", *files, "--tokenizer", tok, "--chunk-tokens", 500, *near, *wanted, numbers=(1, 3))


def test_parts_against_another_data_set_merge_to_the_whole(tok: Path, tmp_path: Path, near: list[object]) -> None:
    texts = repeated(40)
    other = raw.write_jsonl(tmp_path / "other.jsonl", [*texts[:9], near_copy(texts[10], 2)])
    raw.run("jsonl", other, "--tokenizer", tok, *near, "--out", tmp_path / "other")
    file = raw.write_jsonl(tmp_path / "a.jsonl", texts)
    raw.agree(tmp_path, "jsonl", file, "--tokenizer", tok, "--against", tmp_path / "other", *near, numbers=(2,))


WORD = st.sampled_from(["river", "Stone", "tree", "HOUSE", "water"])
TEXT = st.lists(WORD, min_size=1, max_size=3).map(" ".join)


@given(
    st.lists(TEXT, min_size=1, max_size=40),
    st.integers(2, 3),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([0, 0.4]),
)
def test_any_documents_merge(tok: Path, texts: list[str], number: int, keep: bool, files: int, held_out: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            raw.write_jsonl(Path(folder) / f"{one}.jsonl", texts[one::files]) for one in range(min(files, len(texts)))
        ]
        paths.append(raw.write_jsonl(Path(folder) / "c.jsonl", ["Some training text."]))  # never held out
        wanted = ["--tokenizer", tok, "--shards", 3, *(["--keep-duplicates"] if keep else []), "--held-out", held_out]
        raw.agree(Path(folder), "jsonl", *paths, *wanted, numbers=[number])


def test_an_empty_part_merges_as_any_other(tok: Path, tmp_path: Path, capsys: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "c.jsonl", raw.texts(1, sentences=2))  # not held out
    wanted = ["--tokenizer", tok, "--held-out", 0.5]
    folders = raw.parts(tmp_path, 4, "jsonl", file, *wanted)
    assert "0 shards" in capsys.readouterr().out
    raw.run("jsonl", file, *wanted, "--part", "2/4", "--out", folders[1])
    assert "complete already" in capsys.readouterr().out
    for command in ("verify", "stats"):
        assert main([command, str(folders[1])]) == 0
    raw.run("merge", *folders, "--out", tmp_path / "merged")
    raw.run("jsonl", file, *wanted, "--out", tmp_path / "whole")
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")


def test_two_processes_merge_as_one(tok: Path, tmp_path: Path) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", repeated(50))
    folders = raw.parts(tmp_path, 2, "jsonl", file, "--tokenizer", tok)
    raw.run("jsonl", file, "--tokenizer", tok, "--out", tmp_path / "whole")
    raw.run("merge", *folders, "--out", tmp_path / "merged", workers=2)
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")


@pytest.fixture
def two(tok: Path, tmp_path: Path) -> list[Path]:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(80))
    return raw.parts(tmp_path, 2, "jsonl", file, "--tokenizer", tok)


def test_missing_and_foreign_parts(two: list[Path], tok: Path, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "empty").mkdir()
    third = raw.parts(tmp_path, 3, "jsonl", tmp_path / "a.jsonl", "--tokenizer", tok)[1]
    for parts, said in [
        (two[:1], "part 2/2 is missing"),
        (two[1:], "part 1/2 is missing"),
        ([two[0], *two], "part 1/2 is named twice"),
        ([two[0], third], f"{third}: is part 2/3 but {two[0]} is part 1/2; name parts of one division"),
        ([two[0], tmp_path / "empty"], f"{tmp_path}/empty/shards/manifest.json: no such file"),
    ]:
        assert said in raw.refusal(capfd, "merge", *parts, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_made_with_other_options(two: list[Path], tok: Path, tmp_path: Path, capfd: Capture) -> None:
    raw.write_jsonl(tmp_path / "b.jsonl", raw.texts(41))
    for arguments, file, what in [
        (["--tokenizer", tok, "--min-words", 3], "a.jsonl", "options"),
        (["--tokenizer", raw.vocabulary(tmp_path / "tokenizer.json", 120)], "a.jsonl", "options"),
        (["--tokenizer", tok], "b.jsonl", "inputs"),
    ]:
        other = tmp_path / "another"
        raw.run("jsonl", tmp_path / file, *arguments, "--part", "2/2", "--out", other)
        message = raw.refusal(capfd, "merge", two[0], other, "--out", tmp_path / "out")
        assert message == f"{other}: was made with other {what} than {two[0]}; prepare one of them again"
        shutil.rmtree(other)


def test_shards_of_no_part_are_refused(two: list[Path], tmp_path: Path, capfd: Capture) -> None:
    edit(two[1] / "shards", lambda record: record["source"].pop("part"))
    message = raw.refusal(capfd, "merge", *two, "--out", tmp_path / "out")
    assert message.startswith(f"{two[1]}/shards/manifest.json: its shards are not those of a prepared data set")


@pytest.mark.usefixtures("datasketch")
def test_a_merge_refuses_a_damaged_part_until_repaired(tok: Path, tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(80))
    two = raw.parts(tmp_path, 2, "jsonl", file, "--tokenizer", tok, *NEAR)
    raw.run("merge", *two, "--out", tmp_path / "whole")
    for damaged in (two[1] / "shards" / "shard-000001.tar", two[1] / output.BANDS):
        sound = damaged.read_bytes()
        flip(damaged)
        message = raw.refusal(capfd, "merge", *two, "--out", tmp_path / "out")
        assert message.startswith(f"{damaged}: ")
        assert not (tmp_path / "out" / "shards" / "manifest.json").exists()
        damaged.write_bytes(sound)
    raw.run("merge", *two, "--out", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_finished_merge_is_left_alone(two: list[Path], tok: Path, tmp_path: Path, capfd: Capture) -> None:
    out = tmp_path / "out"
    raw.run("merge", *two, "--out", out)
    before = contents(out)
    capfd.readouterr()
    assert main(["merge", *map(str, two), "--out", str(out)]) == 0
    assert "complete already, nothing to do" in capfd.readouterr().out
    assert contents(out) == before
    others = raw.parts(tmp_path / "others", 2, "jsonl", tmp_path / "a.jsonl", "--tokenizer", tok, "--min-words", 3)
    message = raw.refusal(capfd, "merge", *others, "--out", out)
    assert message == f"{out}: was made from other input or with other options; choose another --out or remove it"
    assert "was made from other input" in raw.refusal(capfd, "merge", *two, "--out", two[0])
    assert contents(out) == before
