"""A request to stop, and the watchdog."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.toy import ROOT
from trainer.faults import HUNG, Stop, Watchdog


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_the_first_signal_asks_and_the_handlers_before_come_back(number: int) -> None:
    before = signal.getsignal(number)
    with Stop() as stop:
        assert not stop.asked
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # at once: the same request, passed on
        assert stop.asked
    assert signal.getsignal(number) is before


def test_a_second_request_ends_the_process_at_once() -> None:
    program = (
        "import os, signal, time\nfrom trainer import faults\nfaults.SAME_REQUEST = 0.1\n"
        "with faults.Stop():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(0.3)\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")


def test_the_stop_file_stands_until_its_request_is_met(tmp_path: Path) -> None:
    file = tmp_path / "stop"
    file.touch()
    with pytest.raises(OSError, match="full"), Stop(file):
        raise OSError("the disk is full")
    assert file.exists()
    with Stop(file) as stop:
        assert stop.asked
    assert not file.exists()


def test_the_watchdog_shows_the_stacks_of_who_does_not_move(capfd: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()
    codes = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    with Watchdog(0.1, rank=3, end=end, last_words=0.0):
        assert ended.wait(30)
    assert codes[0] == HUNG
    said = capfd.readouterr().err
    assert "rank 3: no step for 0.1 s (faults.hang_seconds)" in said
    assert "test_the_watchdog_shows_the_stacks" in said


def test_the_watchdog_leaves_who_moves_in_peace() -> None:
    codes: list[int] = []
    with Watchdog(5.0, rank=0, end=codes.append) as watchdog:
        for _ in range(5):
            time.sleep(0.02)
            watchdog.beat()
    assert codes == []
