import io
import sys

import pytest

from deepsiam.data_prep.common import progress


@pytest.fixture(autouse=True)
def period(no_progress_lines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PERIOD", 5.0)


def test_plain_lines_give_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert list(progress.track(range(1, 11), "verify", "shards")) == list(range(1, 11))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "verify: 3/10 shards, 0.3/s, 23 s left"
    assert len(lines) == 4


def test_bytes_are_megabytes_with_the_time_of_all_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.track(iter("ab"), "x", "y")) == ["a", "b"]
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress.track("abc", "verify", "shards")) == ["a", "b", "c"]
    assert "3/3" in terminal.getvalue()
    assert "/s" in terminal.getvalue()


def test_of_several_ranks_only_the_first_one_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PERIOD", -1)
    for rank, lines in (("0", 2), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        assert list(progress.track("ab", "verify", "shards")) == ["a", "b"]
        assert len(capsys.readouterr().err.splitlines()) == lines
