"""What the forking `python` starts behaves like an interpreter of its own."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests import toy, warm_python
from tests.killed import wait_until_ended

pytestmark = pytest.mark.slow  # the first test starts a process that imports all that trainings import

Start = Callable[..., subprocess.Popen[str]]
WAITS = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by it"))
print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a program, given as lines."""
    monkeypatch.syspath_prepend(tmp_path)

    def start(lines: str, *arguments: str) -> subprocess.Popen[str]:
        (tmp_path / "program.py").write_text(lines)
        command = [tmp_path / "python", "-u", "-m", "program", *arguments]
        return subprocess.Popen(command, cwd=tmp_path, env=toy.environment(), stdout=-1, stderr=-1, text=True)

    with warm_python.programs(tmp_path):
        yield start


def test_it_has_what_the_command_was_started_with(start: Start, tmp_path: Path) -> None:
    shown = "'torch' in sys.modules, sys.argv[1:], os.getcwd(), sys.executable, os.environ['HOME']"
    printed, _ = start(f"import os, sys; print({shown})", "a", "--b").communicate()
    assert printed == f"True ['a', '--b'] {tmp_path} {tmp_path}/python {toy.environment()['HOME']}\n"
    real = [tmp_path / "python", "-c", "import sys; print(sys.executable)"]
    assert subprocess.run(real, capture_output=True, text=True).stdout == f"{sys.executable}\n"


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ("raise SystemExit(75)", 75, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
    ],
)
def test_it_ends_as_the_command_does(start: Start, lines: str, code: int, said: str) -> None:
    program = start(lines)
    assert program.communicate()[1].endswith(said)
    assert program.returncode == code


def test_a_signal_reaches_the_command(start: Start) -> None:
    program = start(WAITS)
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    assert warm_python.forked(psutil.Process(program.pid)).pid == pid
    program.terminate()
    assert program.communicate()[1] == "ended by it\n"
    assert program.returncode == 1


def test_the_command_ends_with_a_program_that_is_killed(start: Start) -> None:
    program = start(WAITS)
    assert program.stdout is not None
    forked = psutil.Process(int(program.stdout.readline()))
    program.kill()
    wait_until_ended([forked])
    program.communicate()
