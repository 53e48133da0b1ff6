"""Hosts of a cluster on one machine: network namespaces on one switch, with an ssh server in each."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deepsiam.data_prep.common.errors import InputError
from tests import toy

NETWORK = "10.213.77"
TOOLS = ("ip", "tc", "ssh", "sshd", "ssh-keygen", "pdsh")
CABLE = "cable"  # the interface's name on every host
# for every rank; one thread each: all hosts share this machine's cores, and waiting threads would slow the others
VARIABLES = {"DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": CABLE, "OMP_NUM_THREADS": "1"}

SSHD = """
HostKey {here}/key
AuthorizedKeysFile {here}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
"""
SSH = """
IdentityFile {here}/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
ServerAliveInterval 3
ServerAliveCountMax 3
"""


@dataclass(frozen=True)
class Hosts:
    """Network namespaces; commands start in the first."""

    names: tuple[str, ...]
    here: Path  # the folder of keys, ssh's configuration and the hostfile
    servers: tuple[int, ...]  # the process id of each host's ssh server

    @property
    def addresses(self) -> list[str]:
        """The hosts' addresses, which are also their names for ssh."""
        return [address(number) for number in range(len(self.names))]

    @property
    def hostfile(self) -> Path:
        """A hostfile with one rank per host."""
        return self.here / "hostfile"

    def environment(self) -> dict[str, str]:
        """An environment with an ssh that knows these hosts, and the variables file that DeepSpeed sends to them."""
        changes = {
            "PATH": f"{self.here}{os.pathsep}{os.environ['PATH']}",
            "DS_ENV_FILE": str(self.here / "environment"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        return {**toy.environment(), **changes}

    def on_first(self, command: list[str]) -> list[str]:
        """Return the command line that runs a command on the first host."""
        return self.on(0, command)

    def on(self, host: int, command: list[str]) -> list[str]:
        """Return the command line that runs a command on a host, counted from 0."""
        return [_path_of("ip"), "netns", "exec", self.names[host], *command]

    def cut(self, host: int = 1) -> None:
        """Disconnect a host, counted from 0, from all others."""
        _ip("-n", self.names[host], "link", "set", CABLE, "down")

    def mend(self, host: int = 1) -> None:
        """Reconnect a host, counted from 0."""
        _ip("-n", self.names[host], "link", "set", CABLE, "up")

    @contextmanager
    def unreachable(self, host: int) -> Iterator[None]:
        """Give the first host no route to another: it knows at once; of a cut cable, only when ssh has waited."""
        route = ("unreachable", address(host))
        _ip("-n", self.names[0], "route", "add", *route)
        try:
            yield
        finally:
            _ip("-n", self.names[0], "route", "delete", *route)

    def slow(self, host: int, rate: str) -> None:
        """Limit a host's sending rate, for example to `8mbit`; `unslow` removes the limit."""
        limit = ["root", "tbf", "rate", rate, "burst", "16kb", "latency", "1s"]
        self._tc(host, "add", *limit)

    def unslow(self, host: int) -> None:
        """Let a host send as fast as the others again."""
        self._tc(host, "del", "root")

    def _tc(self, host: int, verb: str, *words: str) -> None:
        command = [_path_of("ip"), "netns", "exec", self.names[host], _path_of("tc"), "qdisc", verb, "dev", CABLE]
        subprocess.run([*command, *words], check=True)

    def hide(self, host: int, folder: Path) -> None:
        """Replace a folder that all hosts share by an empty one on this host, until the network is removed."""
        subprocess.run(
            ["nsenter", "-t", str(self.servers[host]), "-m", "mount", "-t", "tmpfs", "own", str(folder)], check=True
        )


def address(host: int) -> str:
    """Return the address of a host, counted from 0."""
    return f"{NETWORK}.{host + 1}"


@contextmanager
def network(here: Path, number: int) -> Iterator[Hosts]:
    """Yield hosts that reach each other by ssh; raise InputError where the machine cannot make them."""
    missing = [tool for tool in TOOLS if not _path_of(tool)]
    if missing or os.geteuid():
        raise InputError(f"hosts in network namespaces need root and {', '.join(TOOLS)}; missing: {', '.join(missing)}")
    remove_stale()
    names = tuple(f"deepsiam-{os.getpid()}-{host}" for host in range(number))
    switch = f"deepsiam-{os.getpid()}-switch"  # also in a namespace: the user's own network does not change
    with ExitStack() as undo:
        for name in (switch, *names):
            try:
                _ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                raise InputError(f"this machine does not allow network namespaces: {error.stderr}") from None
            undo.callback(_ip, "netns", "delete", name)
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for host, name in enumerate(names):
            port = f"port{host}"
            _ip("-n", name, "link", "add", CABLE, "type", "veth", "peer", "name", port, "netns", switch)
            _ip("-n", switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", name, "address", "add", f"{address(host)}/24", "dev", CABLE)
            _ip("-n", name, "link", "set", CABLE, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        _write_settings(here, number)
        servers = []
        for name in names:
            server = subprocess.Popen(
                [_path_of("ip"), "netns", "exec", name, _path_of("sshd"), "-D", "-f", str(here / "sshd_config")]
            )
            undo.callback(server.wait)
            undo.callback(server.terminate)
            servers.append(server.pid)  # `ip netns exec` becomes the server
        yield Hosts(names, here, tuple(servers))


def remove_stale() -> None:
    """Remove the hosts of tests that were killed, with every process on them."""
    listed = subprocess.run([_path_of("ip"), "netns", "list"], capture_output=True, text=True).stdout
    for name in (line.split()[0] for line in listed.splitlines() if line.startswith("deepsiam-")):
        if psutil.pid_exists(int(name.split("-")[1])):
            continue
        with suppress(subprocess.CalledProcessError):  # another test may be removing it
            while left := _ip("netns", "pids", name).split():
                for process in left:
                    with suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                time.sleep(0.1)
            _ip("netns", "delete", name)


def _write_settings(here: Path, number: int) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd does not start without it
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", here / "key"], check=True)
    (here / "sshd_config").write_text(SSHD.format(here=here))
    (here / "ssh_config").write_text(SSH.format(here=here))
    (here / "ssh").write_text(f'#!/bin/sh\nexec {_path_of("ssh")} -F {here}/ssh_config "$@"\n')
    (here / "ssh").chmod(0o755)
    (here / "environment").write_text("".join(f"{name}={value}\n" for name, value in VARIABLES.items()))
    (here / "hostfile").write_text("".join(f"{address(host)} slots=1\n" for host in range(number)))


def _path_of(tool: str) -> str:
    """A tool's absolute path, or an empty string where it is missing; sshd must be started by its absolute path."""
    return shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or ""


def _ip(*words: str) -> str:
    return subprocess.run([_path_of("ip"), *words], check=True, capture_output=True, text=True).stdout
