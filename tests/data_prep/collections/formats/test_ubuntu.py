"""The Ubuntu corpus: turns split at __eot__, both kinds of CSV, quotes and line breaks; every bad line is reported."""

import gzip
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.ubuntu import EVALUATION, TRAIN, Ubuntu
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices
from tests.data_prep.collections.raw_formats import write_csv

CONTEXT = "hi , all __eou__ anyone ? __eou__ __eot__ yes __eou__ __eot__ "
PAIRS = [
    [CONTEXT, 'try "apt-get" __eou__ or wait __eou__', "1"],
    [CONTEXT, "no idea , really\n\nsorry __eou__", "0"],
    ["one turn", "no idea , really sorry __eou__", "1"],
]
LISTS = [[CONTEXT, "the right one __eou__", *(f"wrong {number} __eou__" for number in range(9))]]
LISTS += [["other __eou__ __eot__", "ok __eou__", "ok __eou__", *(f"wrong {number}" for number in range(8))]]


def write(file: Path, header: list[str], rows: list[list[str]], line_end: str = "\n") -> Path:
    return write_csv(file, [header, *rows], line_end)


def test_turns_are_parts_and_the_marks_are_gone(tmp_path: Path) -> None:
    reader = Ubuntu([write(tmp_path / "train.csv", TRAIN, PAIRS)])
    assert [text.parts for text in reader.queries()] == [
        ["hi , all anyone ?", "yes"],
        ["hi , all anyone ?", "yes"],
        ["one turn"],
    ]
    assert [text.where.line for text in reader.queries()] == [2, 3, 6]  # a row may have several lines


def test_labelled_pairs_and_candidate_lists(tmp_path: Path, small: Tokenizer) -> None:
    files = [write(tmp_path / "train.csv", TRAIN, PAIRS), write(tmp_path / "valid.csv", EVALUATION, LISTS)]
    opened = build("ubuntu", files, tmp_path / "out", small)
    assert opened.splits() == ["dev", "train"]
    assert choices(opened, "train") == [
        ("hi , all anyone ? yes", {'try "apt-get" or wait': 1.0}),
        ("hi , all anyone ? yes", {"no idea , really sorry": 0.0}),
        ("one turn", {"no idea , really sorry": 1.0}),
    ]
    wrong = [f"wrong {number}" for number in range(9)]
    assert choices(opened, "dev") == [
        ("hi , all anyone ? yes", {"the right one": 1.0} | dict.fromkeys(wrong, 0.0)),
        ("other", {"ok": 1.0} | dict.fromkeys(wrong[:8], 0.0)),  # a distractor equal to the answer is no negative
    ]
    assert len(opened.corpus) == 2 + 1 + 9 + 1
    assert len(opened.queries) == 3


def test_compression_windows_line_ends_and_byte_order_marks(tmp_path: Path, small: Tokenizer) -> None:
    plain = build("ubuntu", [write(tmp_path / "train.csv", TRAIN, PAIRS)], tmp_path / "plain", small)
    content = write(tmp_path / "windows.csv", TRAIN, PAIRS, "\r\n").read_bytes()
    (tmp_path / "train.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + content))
    other = build("ubuntu", [tmp_path / "train.csv.gz"], tmp_path / "other", small)
    assert choices(other, "train") == choices(plain, "train")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,b\n", ":7: 2 columns, expected 3"),
        ("a,b,1,c\n", ":7: 4 columns, expected 3"),
        ("a,b,2\n", ":7: label '2' is neither 1 nor 0"),
        ("Context,Utterance,Label\n", ":7: label 'Label' is neither"),
        ("__eou__ __eot__,b,1\n", ":7: 'Context' is empty"),
        ("a, __eou__,1\n", ":7: 'Utterance' is empty"),
        ('a,"b"c,1\n', ":7: not CSV"),
        ('a,"b,1\n', ":7: not CSV"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, small: Tokenizer, row: str, reason: str) -> None:
    file = write(tmp_path / "train.csv", TRAIN, PAIRS)
    with open(file, "a") as stream:
        stream.write(row)
    with pytest.raises(InputError, match=file.name + reason):
        build("ubuntu", [file], tmp_path / "out", small)


def test_a_missing_header_is_named(tmp_path: Path, small: Tokenizer) -> None:
    file = write(tmp_path / "train.csv", *[PAIRS[0], PAIRS[1:]])
    with pytest.raises(InputError, match="train.csv:1: the first line must be the header Context,Utterance,Label"):
        build("ubuntu", [file], tmp_path / "out", small)
