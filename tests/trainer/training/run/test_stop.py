"""Requests to stop: signals and the stop file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deepsiam.trainer.training.run.stop import Stop
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
