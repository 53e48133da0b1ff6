"""Requests to stop, by signals and the stop file; the watchdog; and ranks whose launcher ends, with real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from deepsiam.trainer.training.run import stop
from deepsiam.trainer.training.run.stop import HUNG, Stop
from deepsiam.trainer.training.run.watchdog import Watchdog
from tests import toy
from tests.killed import wait_until_ended
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


def test_a_second_request_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(stop, "exit_with_workers", ended.append)
    monkeypatch.setattr(stop, "SAME_REQUEST", -1.0)
    with Stop():
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended == [128 + signal.SIGTERM]


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
    ended = toy.launch(2, "tests.trainer.training.run.alone", tmp_path / "timed out")
    assert ended.returncode == HUNG
    assert "rank 1: no step for 1 s (faults.hang_seconds); its stacks:" in ended.stderr
    assert "in hang" in ended.stderr
    assert "Timed out" not in ended.stderr
    assert ended.stdout.splitlines() == ["short: Timed out waiting 1000ms", "long: 2.0"]


SAYS = """
import os, subprocess, sys, time
from pathlib import Path
here = Path(sys.argv[1])
def say(*words):
    with open(here / "said", "a") as file:
        print(os.getpid(), *words, file=file, flush=True)
"""
# `deepspeed`, and the launcher of a host that it starts; the launcher's own command line has its module's name
# a shell's job in the background inherits an ignored SIGINT
HEARD = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
DEEPSPEED = f"{SAYS}\n{HEARD}\nsay()\nsubprocess.Popen([sys.executable, '-c', *sys.argv[2:]]).wait()"
LAUNCHER = f"{SAYS}\nsay()\nsubprocess.Popen(sys.argv[3:]).wait()"
# a rank, which begins to import once there is the file `go`
RANK = f"""{SAYS}
say()
while not (here / "go").exists():
    time.sleep(0.01)
from deepsiam.trainer.training.run import parents
say(len(parents._watched))
time.sleep(600)
"""


def start(folder: Path, *before: str, **variables: str) -> subprocess.Popen[bytes]:
    rank = [*before, sys.executable, "-c", RANK, str(folder)]
    launcher = [LAUNCHER, str(folder), "deepspeed.launcher.launch", *rank]
    command = [sys.executable, "-c", DEEPSPEED, str(folder), *launcher]
    with open(folder / "err", "w") as err:
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | variables, stderr=err, start_new_session=True)


def said(folder: Path, number: int) -> list[list[int]]:
    """Wait for that many lines, and return their numbers."""
    path = folder / "said"
    while not path.exists() or path.read_text().count("\n") < number:
        time.sleep(0.005)
    return [[*map(int, line.split())] for line in path.read_text().splitlines()]


def end(started: subprocess.Popen[bytes]) -> None:
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()


@pytest.mark.parametrize(
    ("whom", "number", "imported"),
    [
        (DEEPSPEED, signal.SIGINT, True),
        (DEEPSPEED, signal.SIGTERM, False),
        (LAUNCHER, signal.SIGTERM, True),
        (LAUNCHER, signal.SIGKILL, False),
    ],
)
def test_a_rank_ends_with_its_launchers(tmp_path: Path, whom: str, number: int, imported: bool) -> None:
    started = start(tmp_path, LOCAL_RANK="0", CROSS_SIZE="1")
    deepspeed, launcher, rank = (psutil.Process(line[0]) for line in said(tmp_path, 3))
    if imported:
        (tmp_path / "go").touch()
        assert said(tmp_path, 4)[3] == [rank.pid, 2]
    ended = deepspeed if whom == DEEPSPEED else launcher
    ended.send_signal(number)
    wait_until_ended([ended])
    (tmp_path / "go").touch()
    wait_until_ended([rank])
    assert (tmp_path / "err").read_text().endswith("the launcher has ended: its ranks end, too\n")
    started.wait()


@pytest.mark.parametrize(
    ("before", "variables", "watched"),
    [
        ((), {"LOCAL_RANK": "1"}, 2),
        ((), {}, 0),  # not a rank: its parent may be a script that ends
        (("sh", "-c", '"$@"; true', "sh"), {"LOCAL_RANK": "1", "CROSS_SIZE": "1"}, 0),
        (("env", "A=B"), {"SLURM_LOCALID": "1"}, 2),
    ],
)
def test_launchers_are_watched_and_shells_are_not(
    tmp_path: Path, before: tuple[str, ...], variables: dict[str, str], watched: int
) -> None:
    (tmp_path / "go").touch()
    started = start(tmp_path, *before, **variables)
    assert said(tmp_path, 4)[3][1] == watched
    end(started)
