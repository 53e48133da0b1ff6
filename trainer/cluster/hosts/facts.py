"""Print what this host has as one line of JSON; ask all hosts of a launch, by ssh, to do the same.

python -m trainer.cluster.hosts.facts [FOLDER [PORT [RECIPE [CACHE]]]]
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import psutil

import deepsiam
from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.trainer.training.run.versions import UNKNOWN, code_hash, git_commit, versions

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS, ANSWER_SECONDS = 10, 120  # a first import of torch from a shared file system takes long
AT_ONCE = 64


@dataclass(frozen=True)
class HostFacts:
    """What a host has; sizes are bytes."""

    versions: dict[str, str]  # of Python, of this project's code, the packages that must agree, and RECIPE
    gpus: list[int]  # the memory of each that torch sees
    memory: int
    clock: float  # seconds since 1970; for a host that was asked, relative to the clock here
    free: int  # of the disk of FOLDER
    files: list[str]  # the names in FOLDER, or in its nearest existing parent
    port_is_free: bool
    interfaces: dict[str, list[str]]  # the addresses of each network interface that is up
    own_address: str  # at which gloo listens unless GLOO_SOCKET_IFNAME names an interface
    cache_free: int = 0  # of the disk of CACHE
    unseen: str = ""  # why torch sees no GPU, if the host has one

    def differ_from(self, reference: HostFacts) -> str:
        """Describe which versions differ, as `torch 2.9.1, not 2.13.0`; empty where none does.

        A commit that a host without git does not know differs from none.
        """
        names = self.versions | reference.versions
        pairs = {name: (self.versions.get(name, "none"), reference.versions.get(name, "none")) for name in names}
        return ", ".join(
            f"{name} {version}, not {other_version}"
            for name, (version, other_version) in pairs.items()
            if version != other_version and UNKNOWN not in (version, other_version)
        )


def gather(
    folder: Path | None = None, port: int = 0, recipe: Path | None = None, cache: Path | None = None
) -> HostFacts:
    """Return the facts of this host, of the folder, port, recipe and cache of shards that a run will use."""
    import torch  # imported here, so that importing this file stays fast

    from deepsiam.trainer.training.engine.device import CHOICE, unseen_gpus

    place = existing(folder or Path())
    root = Path(deepsiam.__file__).parent
    software = {"Python": platform.python_version(), "commit": git_commit(root), "code": code_hash(root), **versions()}
    unseen = unseen_gpus()  # before the clock is read: what comes after counts as a difference of clocks
    gpus = 0 if os.environ.get(CHOICE) == "cpu" else torch.cuda.device_count()
    return HostFacts(
        versions=software | ({"recipe": _hash_of(recipe)} if recipe else {}),
        gpus=[torch.cuda.get_device_properties(number).total_memory for number in range(gpus)],
        memory=psutil.virtual_memory().total,
        clock=time.time(),
        free=shutil.disk_usage(place).free,
        files=[path.name for path in place.iterdir()],
        port_is_free=_is_free(port),
        interfaces=_interfaces(),
        own_address=_own_address(),
        cache_free=shutil.disk_usage(existing(cache.expanduser())).free if cache else 0,
        unseen=unseen,
    )


def existing(folder: Path) -> Path:
    """Return a folder, or its nearest existing parent."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _hash_of(recipe: Path) -> str:
    """Return the first digits of the SHA-256 of a recipe and the files that it extends, or `unreadable`."""
    from deepsiam.trainer.training.recipe.yaml_file import read

    try:
        values = json.dumps(read(recipe), sort_keys=True, default=str)
    except InputError:
        return "unreadable"
    return hashlib.sha256(values.encode()).hexdigest()[:12]


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's rendezvous does
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def _interfaces() -> dict[str, list[str]]:
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [entry.address.partition("%")[0] for entry in addresses if entry.family in families]
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
    }


def _own_address() -> str:
    """Return the address that gloo chooses: the first one of this host's name that is its own, else loopback."""
    with suppress(OSError):  # the name has no address
        for family, kind, _, _, place in socket.getaddrinfo(socket.gethostname(), 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as listener, suppress(OSError):
                listener.bind(place)
                return str(place[0])
    return LOOPBACK


def ask(hosts: Sequence[str], ssh_port: int | None = None, *of: object) -> dict[str, HostFacts | str]:
    """Return what each host has, or why that is not known: it does not answer, or lacks this checkout or Python.

    As DeepSpeed does, expect the current folder and this Python at the same paths on every host. `of` are the arguments
    of this file there.
    """
    words = [sys.executable, "-m", "deepsiam.trainer.cluster.hosts.facts", *map(str, of)]
    from deepsiam.trainer.training.engine import device, launcher  # imported here: it takes seconds

    accelerator = launcher.exported().get(device.CHOICE)
    setting = f"{device.CHOICE}={shlex.quote(accelerator)} " if accelerator else ""  # as the ranks there will have it
    command = f"cd {shlex.quote(str(Path.cwd()))} && {setting}{shlex.join(words)}"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(hosts, pool.map(partial(_ask, command, ssh_port), hosts), strict=True))


def _ask(remote_command: str, ssh_port: int | None, host: str) -> HostFacts | str:
    port = ["-p", str(ssh_port)] if ssh_port is not None else []
    command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}", *port, host, remote_command]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=ANSWER_SECONDS
        )
    except FileNotFoundError:
        return "this host has no ssh: install openssh-client"
    except subprocess.TimeoutExpired:
        return f"no answer in {ANSWER_SECONDS} s"
    if answer.returncode:
        message = printable(answer.stderr).removeprefix("bash: line 1: ")
        return message[-200:] or f"ssh ended with code {answer.returncode}"
    try:  # the last line: a login script may print others
        facts = HostFacts(**json.loads(answer.stdout.splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        return f"its checkout is another one, or it answers something else: {printable(answer.stdout)[-200:]!r}"
    return replace(facts, clock=facts.clock - time.time())


if __name__ == "__main__":
    folder, port, *paths = [*sys.argv[1:], *["", "0"][len(sys.argv) - 1 :]]
    json.dump(asdict(gather(Path(folder), int(port), *map(Path, paths))), sys.stdout)
