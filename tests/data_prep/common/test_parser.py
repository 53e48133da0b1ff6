"""What surrounds a command: its arguments, cores, errors, progress; and the words of many scripts."""

import errno
import io
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from deepsiam.data_prep.common import environment, errors, progress, words
from deepsiam.data_prep.common.environment import restored_variables, usable_cores, variable
from deepsiam.data_prep.common.errors import InputError, did_you_mean, exit_on_input_error
from deepsiam.data_prep.common.parser import PACKAGE, Parser
from deepsiam.data_prep.common.words import pieces, split_words
from tests.data_prep.raw import Capture


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="cook")
    parser.add_argument("--plain", action="store_true")
    dishes = parser.add_subparsers(required=True, metavar="DISH")
    soup = dishes.add_parser("soup", example="cook soup 2 3", page="docs/soups.md", description="word " * 20)
    soup.add_argument("--held-out", type=float)
    soup.add_argument("--salt", choices=["little", "much"])
    soup.add_argument("bowls", nargs="*")
    cake = dishes.add_parser("cake")
    cake.add_argument("flour")
    cake.add_argument("eggs", nargs="*")
    return parser


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("soup --helt-out 0.1", "cook soup: unknown option --helt-out; did you mean --held-out?; see cook soup --help"),
        ("soup --held-outs=0.1", "cook soup: unknown option --held-outs; did you mean --held-out?; see"),
        ("soup a --wxyz", "cook soup: unknown option --wxyz; see cook soup --help"),
        ("soup --salt mutch", "invalid choice: 'mutch' (choose from 'little', 'much'); did you mean much?; see"),
        ("soop", "did you mean soup?; see cook --help"),
        ("", "cook: the following arguments are required: DISH; see cook --help"),
        ("cake", "cook cake: the following arguments are required: flour; see cook cake --help"),
    ],
)
def test_the_nearest_name_is_in_the_line(parser: Parser, capsys: Capture, line: str, message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(line.split())
    assert ended.value.code == 2
    (printed,) = capsys.readouterr().err.splitlines()
    assert message in printed


def test_help_ends_with_the_example_and_the_page(parser: Parser, capsys: Capture) -> None:
    chosen = parser.parse_args(["soup", "--held-out", "0.1", "a", "b", "--salt", "much"])
    assert (chosen.held_out, chosen.salt, chosen.bowls, chosen.plain) == (0.1, "much", ["a", "b"], False)
    with pytest.raises(SystemExit):
        parser.parse_args(["soup", "--help"])
    printed = capsys.readouterr().out
    assert printed.endswith(f"\n\nexample:\n  cook soup 2 3\n\nmore: {PACKAGE}/docs/soups.md\n")
    assert "word " * 20 not in printed  # a paragraph is wrapped


V2 = "31 23 0:41 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate"
V1 = """32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 {root} /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"""
HOST = "23 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw"


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of 16 cores without control groups."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    return tmp_path


@pytest.mark.parametrize(
    ("groups", "mounts", "quotas", "expected"),
    [
        ("0::/", V2.format(root="/"), {}, 16),
        ("0::/", V2.format(root="/"), {"cpu.max": "300000 100000"}, 3),  # a container with a namespace of its own
        ("0::/", V2.format(root="/"), {"cpu.max": "9900000 100000"}, 16),  # more than there are
        ("0::/a/b", V2.format(root="/"), {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 3),
        ("0::/a/b", V2.format(root="/"), {"a/b/cpu.max": "20000 100000", "a/cpu.max": "400000 100000"}, 1),
        ("0::/a", V2.format(root="/"), {"b/cpu.max": "100000 100000"}, 16),  # of other processes
        ("0::/../b", V2.format(root="/"), {"cpu.max": "garbage"}, 16),
        ("4:cpu,cpuacct:/a/b\n3:cpuset:/c", V1.format(root="/"), {"cpu,cpuacct/a/v1": "400000 100000"}, 4),
        ("4:cpu,cpuacct:/a", V1.format(root="/"), {"cpu,cpuacct/a/v1": "-1 100000"}, 16),
        ("4:cpu,cpuacct:/docker/x/y", V1.format(root="/docker/x"), {"cpu,cpuacct/v1": "200000 50000"}, 4),
        ("4:cpu,cpuacct:/docker/x", V1.format(root="/other"), {"cpu,cpuacct/v1": "200000 100000"}, 2),
        ("no groups", "no mounts", {}, 16),
    ],
)
def test_the_lowest_quota_counts(system: Path, groups: str, mounts: str, quotas: dict[str, str], expected: int) -> None:
    (system / "proc/self").mkdir(parents=True)
    (system / "proc/self/cgroup").write_text(f"{groups}\n")
    (system / "proc/self/mountinfo").write_text(f"{HOST}\n{mounts}\n")
    for name, value in quotas.items():
        path = system / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "v1":
            for file, number in zip(("cpu.cfs_quota_us", "cpu.cfs_period_us"), value.split(), strict=True):
                path.with_name(file).write_text(f"{number}\n")
        else:
            path.write_text(f"{value}\n")
    assert usable_cores() == expected


def test_an_affinity_counts_and_systems_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert usable_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores() == 6


@pytest.mark.parametrize("before", [{}, {"DEEPSIAM_TEST": "old"}])
def test_variables_are_set_in_the_block_alone(before: dict[str, str]) -> None:
    with patch.dict(os.environ, {"LEFT_OUT": "old", **before}):
        was = dict(os.environ)
        with variable("DEEPSIAM_TEST", "new"):
            assert os.environ["DEEPSIAM_TEST"] == "new"
        assert dict(os.environ) == was
        with restored_variables():
            os.environ |= {"DEEPSIAM_TEST": "new", "ADDED": "new"}
            del os.environ["LEFT_OUT"]
        assert dict(os.environ) == was


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("a file: bad\nin two lines"), 2, "a file: bad in two lines"),
        (KeyboardInterrupt(), 130, "interrupted; run the same command to continue"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x\x1bx"), 2, r"x\x1bx: File name too long"),
        (  # not of the output, which has room
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "No space left on device, in a file without a name: make room in /dev/shm",
        ),
    ],
    ids=["bad input", "Ctrl-C", "a path", "a full disk"],
)
def test_what_the_user_can_fix_is_one_line(
    error: BaseException, code: int, said: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = {errors.SHARED_MEMORY: 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=rooms.get(folder, 1 << 30)))
    with pytest.raises(SystemExit) as stopped, exit_on_input_error("tool"):
        raise error
    assert (stopped.value.code, capsys.readouterr().err) == (code, f"tool: {said}\n")


def test_a_long_id_leaves_what_is_said_of_it() -> None:
    said = str(InputError(f"f.jsonl, line 3: {'x' * 1_000_000}\x1b[2J: no such document; remove the line"))
    assert len(said) < 2_100
    assert said.startswith("f.jsonl, line 3: xxx")
    assert said.endswith(r"xxx\x1b[2J: no such document; remove the line")


@pytest.mark.parametrize("error", [ZeroDivisionError(), FileNotFoundError(errno.ENOENT, "No such file", "a")])
def test_other_errors_pass_through(error: Exception) -> None:
    """A missing file is a bug: commands look first."""
    with pytest.raises(type(error)), exit_on_input_error("tool"):
        raise error


PROGRAM = """
from deepsiam.data_prep.common import errors
from deepsiam.data_prep.common.errors import exit_on_input_error
with exit_on_input_error("tool"):
    print("x" * {size})
"""


@pytest.mark.parametrize(
    ("end", "size", "code", "said"),
    [
        *((">/dev/full", size, 2, "tool: cannot write the output: No space left on device\n") for size in (3, 100_000)),
        (">&-", 3, 0, ""),
        (">&- <&- 2>&-", 100_000, 0, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line(end: str, size: int, code: int, said: str) -> None:
    words = ["sh", "-c", f'exec "{sys.executable}" -c "$PROGRAM" {end}']
    environment = {**os.environ, "PROGRAM": PROGRAM.format(size=size)}
    ended = subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (code, said)


@pytest.mark.parametrize(
    ("known", "options", "said"),
    [
        (["seed", "steps"], {}, "; did you mean seed?"),
        (iter(["seed"]), {"prefix": "data."}, "; did you mean data.seed?"),
        (["batch"], {}, ""),
        (["seed"], {"cutoff": 0.9}, ""),
    ],
)
def test_the_nearest_known_name_is_suggested(known: Any, options: Any, said: str) -> None:
    assert did_you_mean("sede", known, **options) == said


@pytest.fixture(autouse=True)
def period(no_progress_lines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PERIOD", 5.0)


def test_plain_lines_have_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert list(progress.track(range(1, 11), "verify", "shards")) == list(range(1, 11))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "verify: 3/10 shards, 0.3/s, 23 s left"
    assert len(lines) == 4


def test_bytes_are_megabytes_with_the_time_of_all_passes(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress.meter("read", progress.BYTES, 95_000_000_000, later=0.5) as report:
        now = 1000.0
        report(4_750_000_000, "12 redirect")
        now += 1
        report(4_800_000_000, "soon after: not printed")
    with progress.meter("read", progress.BYTES, None) as report:
        now += 6
        report(4_210_000, "")
    assert capsys.readouterr().err.splitlines() == [
        # 19,000 of 20,000 s are left; the later passes take half of 20,000 s
        "read: 4.8/95.0 GB, 4.8 MB/s, 5:17 h left, about 8:03 h of all passes; 12 redirect",
        "read: 4.2 MB, 0.7 MB/s",
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (99.4, "99 s"), (100, "2 min"), (5900, "98 min"), (6000, "1:40 h"), (180_000, "50:00 h")],
)
def test_a_duration_is_short(seconds: float, expected: str) -> None:
    assert progress.duration(seconds) == expected


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress.track("abc", "verify", "shards")) == ["a", "b", "c"]
    assert "3/3" in terminal.getvalue()
    assert "/s" in terminal.getvalue()


def test_of_several_ranks_the_first_reports(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for rank, period, lines in (("0", -1, 2), ("1", -1, 0), ("0", 5, 0)):  # the last: short work prints nothing
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setattr(progress, "PERIOD", period)
        assert list(progress.track("ab", "verify", "shards")) == ["a", "b"]
        assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Latin: single letters, apostrophes, points, code
        ("C is a language; C++, 'K' and vitamin D3", "c is a language c k and vitamin d3"),
        ("It's O’Brien's l'eau, don't", "it brien eau don"),
        ("U.S.A. 3.14 _ __ snake_case os.path 7", "u s a 3 14 __ snake_case os path 7"),
        ("Python™ ´tis ﬁne", "python tis fine"),
        # folded case and form
        ("Straße STRASSE", "strasse strasse"),
        ("İstanbul istanbul I\u0307", "istanbul istanbul i"),
        ("état e\u0301tat É", "état état é"),
        ("ＮＨＫ Ⅳ x²", "nhk iv x2"),
        ("co\u00adoperate", "cooperate"),
        # marks are part of words
        ("हिन्दी भाषा में", "हिन्दी भाषा में"),
        ("क्\u200dष क्ष", "क्ष क्ष"),
        ("ދިވެހި ሰላም፡ዓለም", "ދިވެހި ሰላም ዓለም"),
        ("كِتَابٌ كـتاب", "كتاب كتاب"),
        ("می\u200cخواهم", "میخواهم"),
        # scripts without spaces: letters, then pairs
        ("机器学 2024年", "机 器 学 机器 器学 2024 年"),
        ("𠀀𠀁", "𠀀 𠀁 𠀀𠀁"),
        ("ビール ﾋﾞ 人々", "ビ ー ル ビー ール ビ 人 々 人々"),
        ("ภูเขา", "ภู เ ข า ภูเ เข ขา"),
        ("ភាសា", "ភា សា ភាសា"),
        ("မြန်မာ\u200bစာ", "မြ န် မာ မြန် န်မာ စာ"),
        # emoji; nothing
        ("ok 👍🏽 ❤️", "ok 👍 🏽"),
        (" -- … \u0301", ""),
    ],
)
def test_words_of_many_scripts(text: str, expected: str) -> None:
    assert split_words(text) == expected.split()
    assert split_words(unicodedata.normalize("NFD", text)) == expected.split()


def test_the_quick_path_finds_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [chr(i) for i in range(0x2300) if words._SCRIPTS.fullmatch(chr(i)) and unicodedata.category(chr(i)) != "Cn"]
    texts = [pattern.replace("?", character) for character in plain for pattern in ("a?b", "ab ? c", "it'?", "_?’é ?")]
    quick = list(map(split_words, texts))
    monkeypatch.setattr(words, "_PLAIN_WORDS", words._WORDS)
    assert list(map(split_words, texts)) == quick


def test_pieces_are_the_whole_text() -> None:
    text = "Plain हिन्दी, 机器, \u00e9t\u00e9."
    assert "".join(pieces(text)) == text
    assert [piece for piece in pieces(text) if split_words(piece)] == ["Plain", "हिन्दी", "机", "器", "été"]
