"""A `python` and a `deepspeed` for real launchers: what they start is forked from a process that has its imports.

Both are small programs that stay: they send what they were asked to run to a server, which forks it in the caller's
network and mounts, with its folder, environment and streams. They pass signals on to it, end as it ends, and it is
killed when they are. Any use of `python` but for `-m` starts the real one.

A rank's parent is the server here: that its launcher has died, it notices only as a real interpreter. And all share one
seed of string hashes. Tests that show either start real ones.
"""

import ctypes
import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from tests import warm

LIBC = ctypes.CDLL(None, use_errno=True)
SOCKET = "socket"
LONGEST = 1 << 17  # bytes of a command and its environment
PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
folder, words = os.path.split(sys.argv[0])[0], sys.argv[1:]
if sys.argv[0].endswith("/deepspeed"):
    words = ["-m", "deepspeed.launcher.runner", *words]
if words[:1] == ["-u"]:
    words = words[1:]
if words[:1] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(folder + "/{socket}")
asked = {{
    "pid": os.getpid(),
    "python": folder + "/python",
    "words": words[1:],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
}}
places = [os.open("/proc/self/ns/" + kind, os.O_RDONLY) for kind in ("net", "mnt")]
passed_on = signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2, *places])
forked = int(server.recv(99))

def pass_on(number, _):
    try:
        os.kill(forked, number)
    except ProcessLookupError:
        pass

for number in passed_on:
    signal.signal(number, pass_on)
signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
code = int(server.recv(99) or -signal.SIGKILL)
if code < 0:
    if -code in passed_on:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@dataclass(frozen=True)
class Command:
    """What was forked, and the connection of the program that asked for it."""

    process: BaseProcess
    asker: socket.socket


@contextmanager
def programs(folder: Path) -> Iterator[None]:
    """Write `python` and `deepspeed` into a folder, and serve what they ask."""
    for name in ("python", "deepspeed"):
        (folder / name).write_text(PROGRAM.format(python=sys.executable, socket=SOCKET))
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.bind(str(folder / SOCKET))
        asked.listen()
        end, until = multiprocessing.Pipe()
        server = warm.fork(_serve, asked, until)
    until.close()
    try:
        yield
    finally:
        end.close()
        server.join()


def forked(program: psutil.Process) -> psutil.Process:
    """The process that a program stands for: itself if it is a real interpreter."""
    _, _, file, *_ = program.cmdline()
    noted = Path(file).with_name(str(program.pid))
    return psutil.Process(int(noted.read_text())) if noted.exists() else program


def _serve(asked: socket.socket, until: Connection) -> None:
    """Serve until the other end of `until` is closed, or its process has died; then kill what still runs."""
    running: list[Command] = []
    while True:
        ready = wait([until, asked, *(each for c in running for each in (c.process.sentinel, c.asker))])
        if until in ready:
            for command in running:
                command.process.kill()
            return
        for command in [c for c in running if c.process.sentinel in ready or c.asker in ready]:
            if command.asker in ready:  # it has ended: it says nothing more
                command.process.kill()
            command.process.join()
            with suppress(OSError), command.asker as asker:
                asker.send(str(command.process.exitcode).encode())
            running.remove(command)
        if asked in ready:
            running.append(_start(asked.accept()[0]))


def _start(asker: socket.socket) -> Command:
    message, files, *_ = socket.recv_fds(asker, LONGEST, 5)
    question = json.loads(message)
    process = multiprocessing.get_context("fork").Process(target=_begin, args=(question, files))
    process.start()
    asker.send(str(process.pid).encode())
    for file in files:
        os.close(file)
    return Command(process, asker)


def _begin(question: Mapping[str, Any], files: Sequence[int]) -> None:
    os.setsid()
    for stream in range(3):
        os.dup2(files[stream], stream)
    for place, name in zip(files[3:], ("net", "mnt"), strict=True):
        if os.fstat(place).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino and LIBC.setns(place, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the {name} namespace of the program")
    for file in files:
        os.close(file)
    for stream, name in enumerate(("stdin", "stdout", "stderr")):  # the server's expect files of its own kind
        setattr(sys, name, open(stream, "w" if stream else "r", 1, closefd=False))  # noqa: SIM115
    os.chdir(question["folder"])
    sys.executable = question["python"]
    Path(sys.executable).with_name(str(question["pid"])).write_text(str(os.getpid()))  # for `forked`
    warm.set_environment(question["environment"])
    warm.become(*question["words"])
