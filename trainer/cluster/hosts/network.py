"""The network between the ranks: the interfaces that they will use, and whether they meet over it."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from deepsiam.data_prep.common.errors import printable
from deepsiam.trainer.cluster.hosts import session
from deepsiam.trainer.cluster.hosts.checks import Finding
from deepsiam.trainer.cluster.hosts.facts import HostFacts
from deepsiam.trainer.training.engine.all_reduce import MET

MODULE = "deepsiam.trainer.training.engine.all_reduce"
LAUNCH_SECONDS = 75  # to start the ranks, on top of their own limit
VIRTUAL = ("docker", "br-", "veth", "virbr")  # interfaces of a host's own, whose addresses no other host reaches
ENDINGS = ("launch.py", "ssh exited", "runner.py")  # in lines that tell only that a rank ended
ENV_FILE = "in the file .deepspeed_env, one line NAME=value"


def interface(facts: Mapping[str, HostFacts], variables: Mapping[str, str]) -> Iterator[Finding]:
    """Check the interface that gloo or NCCL will use on each host, with the ranks' `variables`: can others reach it?"""
    backend = "NCCL" if any(host_facts.gpus for host_facts in facts.values()) else "gloo"
    variable = f"{backend.upper()}_SOCKET_IFNAME"
    value = variables.get(variable, "")
    names_by_host = {host: _chosen(host_facts, backend, value) for host, host_facts in facts.items()}
    has_several_hosts, fine = len(facts) > 1, True
    for host, host_facts in facts.items():
        has = ", ".join(sorted(host_facts.interfaces))
        if not names_by_host[host]:
            fine = False
            todo = f"set {variable} to one that all hosts have, {ENV_FILE}"
            yield Finding("interface", "wrong", f"{host}: {variable}={value}, and it has {has}", todo)
        elif has_several_hosts and all(_is_loopback(host_facts, name) for name in names_by_host[host]):
            fine = False
            message = f"{host}: {backend} would use {', '.join(names_by_host[host])}, which no other host reaches"
            yield Finding("interface", "warning", message, f"set {variable}={_outside(host_facts, facts)} {ENV_FILE}")
    if fine:
        names = {", ".join(host_names) for host_names in names_by_host.values()}
        listing = "; ".join(f"{host} {', '.join(host_names)}" for host, host_names in names_by_host.items())
        yield Finding("interface", "ok", f"{backend} over {names.pop() if len(names) == 1 else listing}")


def meet(command: Sequence[str]) -> Finding:
    """Start the ranks by the launcher's `command`, and check that they sum a tensor.

    No process started on this host is left running. The launcher is killed rather than asked to end: if asked,
    DeepSpeed's launcher kills every training that runs on its hosts. Ranks on other hosts end by themselves.
    """
    # a file, not a pipe: processes that ssh leaves in the background would hold a pipe open
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        words = [*command, "--module", MODULE]
        launcher = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            launcher.wait(LAUNCH_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"the ranks did not end in {LAUNCH_SECONDS} s", file=output, flush=True)
        finally:
            session.kill(launcher.pid)
            launcher.wait()
        output.seek(0)
        last_line = ""
        for line in output:
            if MET in line:
                return Finding("network", "ok", line[line.index(MET) :].strip())
            if line.strip() and not any(of in line for of in ENDINGS):
                last_line = line
    reason = printable(last_line)[-300:] or "the launcher ended without a word"
    return Finding("network", "wrong", reason, "see `interface`; open the hosts' ports to each other")


def _chosen(host: HostFacts, backend: str, value: str) -> list[str]:
    """Return the interfaces that a backend will use on a host; none where the variable names an unknown one."""
    if backend == "NCCL":
        return _chosen_by_nccl(host, value)
    if value:
        names = value.split(",")
        return names if all(name in host.interfaces for name in names) else []
    return [name for name, addresses in host.interfaces.items() if host.own_address in addresses] or ["lo"]


def _chosen_by_nccl(host: HostFacts, value: str) -> list[str]:
    """Apply NCCL_SOCKET_IFNAME: a list of prefixes; `=` before them means whole names, `^` all other interfaces."""
    sign, names = (value[0], value[1:].split(",")) if value[:1] in ("=", "^") else ("", value.split(","))
    if not value:
        outside = [name for name in host.interfaces if not _is_loopback(host, name) and not name.startswith("docker")]
        return outside or [name for name in host.interfaces if _is_loopback(host, name)]
    if sign == "^":
        return [name for name in host.interfaces if not name.startswith(tuple(names))]
    return [name for name in host.interfaces if (name in names if sign else name.startswith(tuple(names)))]


def _outside(host: HostFacts, facts: Mapping[str, HostFacts]) -> str:
    """Return an interface at which others may reach a host, if possible one that all hosts have; else NAME."""
    names = [name for name, addresses in host.interfaces.items() if addresses and not name.startswith(VIRTUAL)]
    names = [name for name in names if not _is_loopback(host, name)]
    shared_names = [name for name in names if all(name in peer.interfaces for peer in facts.values())]
    return min(shared_names or names, default="NAME")


def _is_loopback(host: HostFacts, name: str) -> bool:
    return any(address.startswith("127.") or address == "::1" for address in host.interfaces.get(name, ["127.0.0.1"]))
