"""Ask all hosts of a launch at the same time, by ssh, what they have."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from deepsiam.data_prep.common.errors import printable
from deepsiam.trainer.cluster.hosts.facts import HostFacts

CONNECT_SECONDS, ANSWER_SECONDS = 10, 120  # a first import of torch from a shared file system takes long
AT_ONCE = 64


def ask(hosts: Sequence[str], ssh_port: int | None = None, *of: object) -> dict[str, HostFacts | str]:
    """Return what each host has, or why that is not known: it does not answer, or lacks this checkout or Python.

    As DeepSpeed does, expect the current folder and this Python at the same paths on every host.

    Args:
        hosts: their names.
        ssh_port: the port of their ssh servers, if not ssh's own.
        of: the arguments of trainer.cluster.hosts.facts.
    """
    words = [sys.executable, "-m", "deepsiam.trainer.cluster.hosts.facts", *map(str, of)]
    from deepsiam.trainer.training.engine import device, launcher  # imported here: it takes seconds

    chosen = launcher.exported().get(device.CHOICE)
    setting = f"{device.CHOICE}={shlex.quote(chosen)} " if chosen else ""  # as the ranks there will have it
    command = f"cd {shlex.quote(str(Path.cwd()))} && {setting}{shlex.join(words)}"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(hosts, pool.map(partial(_ask, command, ssh_port), hosts), strict=True))


def _ask(here: str, ssh_port: int | None, host: str) -> HostFacts | str:
    port = ["-p", str(ssh_port)] if ssh_port is not None else []
    command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}", *port, host, here]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=ANSWER_SECONDS
        )
    except FileNotFoundError:
        return "this host has no ssh: install openssh-client"
    except subprocess.TimeoutExpired:
        return f"no answer in {ANSWER_SECONDS} s"
    if answer.returncode:
        said = printable(answer.stderr).removeprefix("bash: line 1: ")
        return said[-200:] or f"ssh ended with code {answer.returncode}"
    try:  # the last line: a login script may print others
        facts = HostFacts(**json.loads(answer.stdout.splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        return f"its checkout is another one, or it answers something else: {printable(answer.stdout)[-200:]!r}"
    return replace(facts, clock=facts.clock - time.time())
