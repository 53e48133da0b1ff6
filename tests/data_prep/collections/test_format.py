"""What all formats share: lines, JSON lines, and the split of each file."""

from pathlib import Path

import pytest

from deepsiam.data_prep.collections.format import (
    Where,
    check_number,
    files_by_split,
    joined,
    split_and_file,
    text_lines,
    titled_text,
)
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.data_prep.common.errors import InputError


def test_lines_have_their_numbers_and_no_ends(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xef\xbb\xbfa\r\n\r\n  \nb\tc \n\xff")
    lines = text_lines(file)
    assert [next(lines), next(lines)] == [(Where(file, 1), "a"), (Where(file, 4), "b\tc ")]
    with pytest.raises(InputError, match="file:5: not UTF-8"):
        next(lines)


def test_a_place_is_a_line_an_element_or_a_row_and_an_earlier_one_is_named_without_its_file() -> None:
    places = [Where(Path("a"), 3), Where(Path("a"), 3, "element 7"), Where(Path("a"), 0, "row 7"), Where(Path("b"), 2)]
    assert [*map(str, places)] == ["a:3", "a:3: element 7", "a: row 7", "b:2"]
    later = Where(Path("a"), 9)
    assert [places[i].before(later) for i in (0, 2, 3)] == ["on line 3", "in row 7", "in b:2"]


@pytest.mark.parametrize(
    ("names", "joins"),
    [
        (["dev.small.jsonl", "dev.jsonl"], ["split dev: joins dev and dev.small; write SPLIT=FILE to"]),
        (["train-hard.jsonl.gz", "train.jsonl"], ["split dev: joins train and train-hard; write"]),
        (["a.tsv", "b.tsv", "dev.tsv", "development.tsv"], []),
        (["dev-00000-of-00002.tsv", "dev-00001-of-00002.tsv", "dev.tsv"], []),
    ],
)
def test_files_that_may_be_of_other_splits_are_named(names: list[str], joins: list[str]) -> None:
    told = list(joined({"dev": [Path("in") / name for name in names]}))
    assert [line[: len(expected)] for line, expected in zip(told, joins, strict=True)] == joins


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("held_out", "dev"),
        ("train.json", "train"),
        ("nq-dev.json.gz", "dev"),
        ("valid_both_original.txt", "dev"),
        ("SICK_test_annotated.txt", "test"),
        ("SICK_trial.txt", "dev"),
        ("val.jsonl", "dev"),
        ("mine.devel.tsv", "dev"),
        ("development-1.json", "dev"),
        ("values.tsv", "train"),
        ("pairs.tsv", "train"),
        ("trainer.tsv", "train"),
        ("latest.tsv", "train"),
    ],
)
def test_a_file_name_tells_the_split(tmp_path: Path, name: str, split: str) -> None:
    (tmp_path / name).touch()
    assert files_by_split([tmp_path / name]) == {split: [tmp_path / name]}
    assert files_by_split([Path(f"mine={tmp_path / name}")]) == {"mine": [tmp_path / name]}


def test_several_files_of_a_split(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("train-1.json", "train-2.json", "a=b")]
    for file in files:
        file.touch()
    assert files_by_split(files) == {"train": files}


def test_every_format_has_its_tests() -> None:
    tests = {file.stem.removeprefix("test_") for file in Path(__file__).with_name("formats").glob("test_*.py")}
    assert tests == {*FORMATS, "example"}  # that of examples/


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("before", ["", "dev="])
def test_a_name_that_is_too_long_is_reported(name: str, before: str) -> None:
    with pytest.raises(
        InputError, match="x: (cannot (read|list): File name too long|no such folder in BEIR's layout)$"
    ):
        FORMATS[name]([Path(before + "x" * 256)])


def test_a_split_is_a_name_and_not_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for split, file in (("dev", "x" * 255), ("dev.small", "b")):
        Path(file).touch()
        assert split_and_file(Path(f"{split}={file}")) == (split, Path(file))
    for split in ("../out", "", "a b", ".."):
        with pytest.raises(InputError, match=f"{split}=.*: no such file"):
            split_and_file(Path(f"{split}={tmp_path / 'b'}"))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"title": "A", "text": "b"}, "A b"),
        ({"title": None, "text": " b\n"}, "b"),
        ({"title": "A", "text": ""}, "A"),
        ({"text": "", "document_text": "b"}, "b"),
        ({"text": "a", "document_text": "b"}, "a"),
    ],
)
def test_title_and_text_are_joined(record: dict[str, str], text: str) -> None:
    assert titled_text(record, ["text", "document_text"], Where(Path("file"), 1)) == text


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"title": "A"}, "'text' is missing"),
        ({"title": "A", "text": None}, "'text' is missing or not a string"),
        ({"text": ["a"]}, "'text' is missing or not a string"),
        ({"document_text": 7}, "'document_text' is missing or not a string"),
        ({"title": 7, "text": "a"}, "'title' is not a string"),
        ({"title": " ", "text": "\n"}, "'text' is empty"),
    ],
)
def test_a_record_without_text_is_refused(record: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=f"^file:3: {reason}"):
        titled_text(record, ["text", "document_text"], Where(Path("file"), 3))


def test_labels_are_numbers_or_their_text() -> None:
    where = Where(Path("file"), 3)
    assert [check_number(number, "score", where) for number in (3, "-2.5", True, " 1e3 ")] == [3.0, -2.5, 1.0, 1000.0]
    for number in (None, "", "good", "1_0", "٣", "1 0", [1], "nan", float("inf"), -1e39, 10**400):
        with pytest.raises(InputError, match="^file:3: score .* is not a number"):
            check_number(number, "score", where)
