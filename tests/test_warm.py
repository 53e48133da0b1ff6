"""Commands forked from a process that has their imports, also by the forking `python`, behave like started ones."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests import toy, warm, warm_python
from tests.killed import wait_until_ended

pytestmark = pytest.mark.slow  # the first test starts a process that imports all that trainings import

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a program, given as lines, to its end: on `ranks` ranks, or with 0 as an ordinary process."""

    def run(lines: str, *arguments: str, ranks: int = 0, timeout: float = 100) -> subprocess.CompletedProcess[str]:
        (tmp_path / "program.py").write_text(lines)
        monkeypatch.syspath_prepend(tmp_path)
        environment = {**toy.environment(), "MASTER_PORT": str(toy.free_port())}
        return warm.run("program", *arguments, ranks=ranks, environment=environment, timeout=timeout)

    return run


def test_it_has_imported_before_it_starts_and_computed_nothing(run: Run) -> None:
    loaded = "import os, sys; print({'torch', 'deepspeed', 'deepsiam.trainer.jobs.finetuning'} <= set(sys.modules)); "
    assert run(loaded + "print(os.listdir('/proc/self/task') == [str(os.getpid())])").stdout == "True\nTrue\n"


def test_it_has_the_threads_that_its_environment_asks_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert run("import torch; print(torch.get_num_threads())").stdout == "3\n"


def test_its_server_is_not_the_one_that_a_benchmark_starts(run: Run, tmp_path: Path) -> None:
    other = multiprocessing.get_context("forkserver").Process(target=write_parent, args=(tmp_path / "parent",))
    other.start()
    parent = run("import os; print(os.getppid())").stdout
    other.join()
    assert int(parent) != int((tmp_path / "parent").read_text())


def write_parent(path: Path) -> None:
    path.write_text(str(os.getppid()))


def test_it_has_the_arguments_environment_and_folder_of_a_command(run: Run) -> None:
    lines = "import os, sys; print(__name__, sys.argv[1:], os.getcwd(), sorted(os.environ), sep='\\n')"
    names = sorted({*toy.environment(), "MASTER_PORT"})
    assert run(lines, "a", "--b").stdout == f"__main__\n['a', '--b']\n{toy.ROOT}\n{names}\n"


def test_it_prints_on_both_streams(run: Run) -> None:
    done = run("import os, sys; print('one'); print('two', file=sys.stderr); os.write(1, b'three'); os._exit(75)")
    assert (done.returncode, done.stdout, done.stderr) == (75, "one\nthree", "two\n")


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        ("raise SystemExit('the reason')", 1, "the reason\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
    ],
)
@pytest.mark.parametrize("ranks", [0, 1])
def test_its_exit_code_is_that_of_the_command(run: Run, lines: str, code: int, words: str, ranks: int) -> None:
    done = run(lines, ranks=ranks)
    assert done.returncode == (code % 256 if ranks else code)  # DeepSpeed's launcher exits with 247 for SIGKILL
    assert done.stderr.endswith(words)


def test_when_a_rank_fails_the_others_get_sigterm(run: Run) -> None:
    lines = """
import os, signal, sys, time

def stop(*_):
    print("stopped")
    sys.exit(0)

if os.environ["RANK"] == "1":
    time.sleep(0.5)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
time.sleep(60)
"""
    done = run(lines, ranks=2)
    assert (done.returncode, done.stdout) == (3, "stopped\n")


def test_one_that_takes_too_long_is_killed_with_its_children(run: Run, tmp_path: Path) -> None:
    lines = f"""
import os, sys, time
os.fork()
print(os.getpid(), file=open({str(tmp_path / "pids")!r}, "a"), flush=True)
time.sleep(60)
"""
    with pytest.raises(subprocess.TimeoutExpired):
        run(lines, ranks=1, timeout=10)
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    psutil.wait_procs([psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))], timeout=30)
    assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)


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


def test_a_python_has_what_it_was_started_with(start: Start, tmp_path: Path) -> None:
    shown = "'torch' in sys.modules, sys.argv[1:], os.getcwd(), sys.executable, os.environ['HOME']"
    printed, _ = start(f"import os, sys; print({shown})", "a", "--b").communicate()
    assert printed == f"True ['a', '--b'] {tmp_path} {tmp_path}/python {toy.environment()['HOME']}\n"
    real = [tmp_path / "python", "-c", "import sys; print(sys.executable)"]
    assert subprocess.run(real, capture_output=True, text=True).stdout == f"{sys.executable}\n"


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ("raise SystemExit(75)", 75, ""),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
    ],
)
def test_a_python_ends_as_the_command_does(start: Start, lines: str, code: int, said: str) -> None:
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
