"""Start the project's commands in milliseconds: fork them from a process that has already imported what they import.

Importing torch, DeepSpeed and the trainer takes six seconds of CPU per process, and DeepSpeed's launcher is two more. A
forked command is a process like any other, with its own environment, streams, signals and exit code. But all share one
seed of string hashes: tests whose result could depend on it start real interpreters through DeepSpeed's launcher.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch

ROOT = Path(__file__).resolve().parent.parent
EXECUTABLE = "FORKED_PYTHON"  # the variable that names a forked command's `sys.executable`
PATIENCE = 1200.0  # seconds after which a command counts as hung: a busy machine takes ten times as long as a quiet one
IMPORTED = [  # what the commands import once they have parsed, and most runs when they begin
    "deepspeed.launcher.launch",
    "tests.trainer.many_runs",
    "deepsiam.trainer.interface.evaluation",
    "deepsiam.trainer.analysis.report",
    "deepsiam.trainer.interface.export",
    "deepsiam.trainer.training.run.command",
    "deepsiam.models.pretraining.seed",
    "transformers.models.bert.modeling_bert",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.ops.triton_ops",
    "tests.frozen",
]
# read at import; with several OpenBLAS threads, the server would have threads that its forks lack
SETTINGS = {"DS_ACCELERATOR": "cpu", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
# not multiprocessing's global server: a benchmark that a test calls starts that one with its own imports
SERVER = forkserver.ForkServer()
SERVER.set_forkserver_preload(IMPORTED)


class Started:
    """A running command: the leader of its own session, and the parent of its ranks if it has any.

    `pid`, `poll` and `wait` are as in subprocess.Popen.
    """

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid is not None
        self.process, self.pid = process, process.pid

    def poll(self) -> int | None:
        """Return the exit code; None while the command runs."""
        return self.process.exitcode

    def wait(self, timeout: float) -> int:
        """Return the exit code; raise TimeoutExpired if the command runs longer."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.process.name, timeout)
        return self.process.exitcode


def start(module: str, *arguments: str, ranks: int, environment: Mapping[str, str], out: Path, err: Path) -> Started:
    """Start `python -m module argument ...`, or `ranks` ranks of it; append their output to `out` and `err`.

    `environment` sets the MASTER_PORT of the ranks. With 0 ranks, no variables of a distributed run are set.
    """
    command = (_launch, ranks, module, *arguments) if ranks else (become, module, *arguments)
    return Started(fork(_begin, dict(environment), out, err, *command, name=module))


def fork(target: Callable[..., None], *arguments: object, name: str = "forked") -> BaseProcess:
    """Start a process that has the imports."""
    process = multiprocessing.get_context("forkserver").Process(target=target, args=arguments, name=name)
    with server():
        process.start()
    return process


@contextmanager
def server() -> Iterator[None]:
    """Let every fork server of this process be the one that has the imports."""
    with patch.dict(os.environ, SETTINGS):
        SERVER.ensure_running()
    with patch.object(forkserver, "connect_to_new_process", SERVER.connect_to_new_process):
        yield


def run(
    module: str, *arguments: str, ranks: int, environment: Mapping[str, str], timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Start a command and wait until it ends."""
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        started = start(module, *arguments, ranks=ranks, environment=environment, out=out, err=err)
        try:
            code = started.wait(timeout)
        except BaseException:
            os.killpg(started.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess([module, *arguments], code, out.read_text(), err.read_text())


def _begin(
    environment: Mapping[str, str], out: Path, err: Path, command: Callable[..., None], *arguments: object
) -> None:
    os.setsid()
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.chdir(ROOT)
    set_environment(environment)
    sys.executable = environment.get(EXECUTABLE, sys.executable)
    command(*arguments)


def set_environment(environment: Mapping[str, str]) -> None:
    """Replace the environment, in a process that has imported torch."""
    os.environ.clear()
    os.environ.update(environment)
    if threads := environment.get("OMP_NUM_THREADS"):  # torch has already read its own value
        torch.set_num_threads(int(threads))


def become(module: str, *arguments: str) -> None:
    """Do what `python -m` does."""
    sys.modules.pop(module, None)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _launch(ranks: int, module: str, *arguments: str) -> None:
    """Do what DeepSpeed's launcher does: start the ranks; when one fails, end the others, then exit with its code."""
    from deepspeed.launcher.launch import terminate_process_tree

    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    running = []
    for rank in range(ranks):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        words = (module, f"--local_rank={rank}", *arguments)
        running.append(multiprocessing.get_context("fork").Process(target=become, args=words))
        running[-1].start()
    while running:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # wait until one has ended; its exit code is read below
        failed = [process.exitcode for process in running if process.exitcode]
        running = [process for process in running if process.exitcode is None]
        if failed:
            for process in running:
                terminate_process_tree(process.pid)
            raise SystemExit(failed[0])
