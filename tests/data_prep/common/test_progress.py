import io
import sys

import pytest

from data_prep.common import progress


def test_plain_lines_give_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert list(progress.track(range(1, 11), "verify", "shards")) == list(range(1, 11))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "verify: 3/10 shards, 0/s, 14 s left"
    assert len(lines) == 3


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
