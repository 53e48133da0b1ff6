"""Requests to stop, by signals and the stop file; and the watchdog."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deepsiam.trainer.training.run.stop import HUNG, Stop
from deepsiam.trainer.training.run.watchdog import Watchdog
from tests import toy
from tests.ports import free_port
from tests.toy import ROOT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_the_first_signal_is_a_request_and_the_previous_handlers_are_restored(number: int) -> None:
    previous = signal.getsignal(number)
    with Stop() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # immediately: the launcher repeats the same request
        assert stop.requested
    assert signal.getsignal(number) is previous


def test_a_second_request_ends_the_process_at_once() -> None:
    program = (
        "import os, signal, time\nfrom trainer.training.run import stop\nstop.SAME_REQUEST = 0.1\n"
        "with stop.Stop():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(0.3)\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still running')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")


def test_the_stop_file_is_removed_once_its_request_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "stop"
    file.touch()
    with pytest.raises(OSError, match="full"), Stop(file):
        raise OSError("the disk is full")
    assert file.exists()
    capsys.readouterr()
    with Stop(file) as stop:
        assert stop.requested
    assert not file.exists()
    assert capsys.readouterr().out == f"{file} asks for a stop: the run saves, removes the file and ends\n"


def test_without_progress_the_stacks_are_printed_and_the_process_ends(capfd: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()
    codes = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    with Watchdog(0.1, rank=3, end=end, grace=0.0):
        assert ended.wait(30)
    assert codes[0] == HUNG
    printed = capfd.readouterr().err
    assert "rank 3: no step for 0.1 s (faults.hang_seconds)" in printed
    assert "test_without_progress_the_stacks" in printed


def test_with_progress_the_process_goes_on() -> None:
    codes: list[int] = []
    with Watchdog(1000.0, rank=0, end=codes.append) as watchdog:
        watchdog.last -= 900
        before = time.monotonic()
        watchdog.beat()
        assert watchdog.last >= before
    assert codes == []


@pytest.mark.slow
def test_a_rank_may_work_alone_and_one_that_hangs_is_found_before_the_collective_ends(tmp_path: Path) -> None:
    environment = {**toy.environment(), "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.trainer.training.run.alone", str(tmp_path / "timed out")],
            cwd=toy.ROOT,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        output, errors = ranks[1].communicate(timeout=300)
    finally:
        ranks[0].kill()  # it hangs
    ranks[0].communicate()
    assert output.splitlines() == ["short: Timed out waiting 1000ms", "long: 2.0"], errors
    assert ranks[1].returncode == HUNG
    assert "rank 1: no step for 1 s (faults.hang_seconds); its stacks:" in errors
    assert "in hang" in errors
    assert "Timed out" not in errors
