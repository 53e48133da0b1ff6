"""Ranks whose launcher ends, with real processes: each says its id, and starts the next one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.killed import wait_until_ended
from tests.toy import ROOT

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
