"""ConvAI2: personas and turns so far, twenty candidates, files without candidates; every bad line is reported."""

import gzip
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.collections.formats.convai2 import ConvAI2
from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices

OTHERS = "|".join(f"reply {number} ." for number in range(19))
DIALOGUES = f"""\
1 your persona: i like foxes .
2 your persona: i like dogs .
3 hi , how are you ?\ti am fine .\t\t{OTHERS}|i am fine .
4 what do you like ?\tdogs !\t\tdogs !|{OTHERS}
1 your persona: i run .
2 __SILENCE__\thello .\t\t{OTHERS}|hello .
"""


def write(folder: Path, content: str, name: str = "train_self_original.txt") -> Path:
    (folder / name).write_text(content)
    return folder / name


def test_a_query_is_the_persona_and_the_turns_so_far(tmp_path: Path) -> None:
    assert [text.parts for text in ConvAI2([write(tmp_path, DIALOGUES)]).queries()] == [
        ["your persona: i like foxes .", "your persona: i like dogs .", "hi , how are you ?"],
        [
            "your persona: i like foxes .",
            "your persona: i like dogs .",
            "hi , how are you ?",
            "i am fine .",
            "what do you like ?",
        ],
        ["your persona: i run .", "__SILENCE__"],
    ]


def test_twenty_candidates_one_of_them_right(tmp_path: Path, small: Tokenizer) -> None:
    opened = build("convai2", [write(tmp_path, DIALOGUES, "valid_self_original.txt")], tmp_path / "out", small)
    assert opened.splits() == ["dev"]
    lists = choices(opened, "dev")
    assert [len(candidates) for _, candidates in lists] == [20, 20, 20]
    right = [[text for text, label in candidates.items() if label] for _, candidates in lists]
    assert right == [["i am fine ."], ["dogs !"], ["hello ."]]
    assert list(lists[1][1])[0] == "dogs !"  # candidates keep the order of the file
    assert len(opened.corpus) == 22  # equal candidates are stored as one document
    assert [len(opened.queries.parts(number)) for number in range(3)] == [3, 5, 2]


def test_a_file_without_candidates_or_personas(tmp_path: Path, small: Tokenizer) -> None:
    file = write(tmp_path, "1 hi .\thello .\n2 bye .\thello .\n1 hi .\tyes .\n", "train_none_original_no_cands.txt")
    opened = build("convai2", [file], tmp_path / "out", small)
    assert choices(opened, "train") == [
        ("hi .", {"hello .": 1.0}),
        ("hi . hello . bye .", {"hello .": 1.0}),
        ("hi .", {"yes .": 1.0}),
    ]
    assert len(opened.queries) == 2  # two groups share one query


def test_compression_windows_line_ends_and_byte_order_marks(tmp_path: Path, small: Tokenizer) -> None:
    plain = build("convai2", [write(tmp_path, DIALOGUES)], tmp_path / "plain", small)
    content = b"\xef\xbb\xbf" + DIALOGUES.replace("\n", "\r\n").encode()
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(content))
    other = build("convai2", [tmp_path / "train.txt.gz"], tmp_path / "other", small)
    assert choices(other, "train") == choices(plain, "train")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hello\tyou", ":7: does not begin with its number"),
        ("4 a\tb\t\tb", ":7: numbered 4, after 2"),
        ("3 just a turn", ":7: neither a line of a persona nor a turn"),
        ("3 a\tb\tb", ":7: 3 columns, expected turn TAB reply TAB TAB candidates"),
        ("3 a\tb\t\tc|d", ":7: the reply is not among the candidates"),
        ("3 a\tb\t\tb||d", ":7: 'candidate' is empty"),
        ("3 a\t\t\tb", ":7: 'reply' is empty"),
        ("3 \tb\t\tb", ":7: 'turn' is empty"),
        ("3 a\tb\t\tb|\udcff", ":7: not UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, small: Tokenizer, line: str, reason: str) -> None:
    file = write(tmp_path, "")
    file.write_bytes((DIALOGUES + line + "\n").encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=file.name + reason):
        build("convai2", [file], tmp_path / "out", small)
    assert not (tmp_path / "out").exists()
