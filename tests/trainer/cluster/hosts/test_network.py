"""The network checks: the interfaces that the ranks will use, and what is reported when a fake launcher ends."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deepsiam.trainer.cluster.hosts import network
from deepsiam.trainer.cluster.hosts.facts import HostFacts
from deepsiam.trainer.cluster.hosts.network import meet
from tests.trainer.cluster.hosts.test_checks import only

INTERFACES = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.1"], "docker0": ["172.17.0.1"], "ib0": ["10.1.0.1"]}
FACTS = HostFacts({}, [], 0, 0.0, 0, [], True, INTERFACES, "10.0.0.1")
TWO = {"a": FACTS, "b": FACTS}
GPUS = {host: replace(facts, gpus=[80]) for host, facts in TWO.items()}


@pytest.mark.parametrize(
    ("hosts", "variables", "said"),
    [
        (TWO, {}, "gloo over eth0"),
        (TWO, {"GLOO_SOCKET_IFNAME": "ib0,eth0"}, "gloo over ib0, eth0"),
        (TWO, {"NCCL_SOCKET_IFNAME": "none"}, "gloo over eth0"),
        ({"a": FACTS, "b": replace(FACTS, own_address="10.1.0.1")}, {}, "gloo over a eth0; b ib0"),
        ({"a": replace(FACTS, own_address="127.0.1.1")}, {}, "gloo over lo"),  # a single host reaches itself
        (GPUS, {}, "NCCL over eth0, ib0"),
        (GPUS, {"NCCL_SOCKET_IFNAME": "eth,ib"}, "NCCL over eth0, ib0"),
        (GPUS, {"NCCL_SOCKET_IFNAME": "=ib0"}, "NCCL over ib0"),
        (GPUS, {"NCCL_SOCKET_IFNAME": "^lo,docker"}, "NCCL over eth0, ib0"),
    ],
)
def test_the_interface_is_the_one_that_the_backend_chooses(
    hosts: dict[str, HostFacts], variables: dict[str, str], said: str
) -> None:
    finding = only(network.interface(hosts, variables))
    assert (finding.state, finding.said) == ("ok", said)


@pytest.mark.parametrize(
    ("hosts", "name", "value"),
    [
        (TWO, "GLOO_SOCKET_IFNAME", "eth1"),
        (TWO, "GLOO_SOCKET_IFNAME", "eth"),
        (GPUS, "NCCL_SOCKET_IFNAME", "=eth"),
        (GPUS, "NCCL_SOCKET_IFNAME", "mlx"),
    ],
)
def test_an_interface_that_hosts_lack(hosts: dict[str, HostFacts], name: str, value: str) -> None:
    findings = list(network.interface(hosts, {name: value}))
    assert [finding.state for finding in findings] == ["wrong", "wrong"]
    assert findings[1].said == f"b: {name}={value}, and it has docker0, eth0, ib0, lo"


def test_an_interface_that_one_host_lacks() -> None:
    other = replace(FACTS, interfaces={"lo": ["127.0.0.1"], "eth9": ["10.0.0.2"]})
    finding = only(network.interface({"a": FACTS, "b": other}, {"GLOO_SOCKET_IFNAME": "eth0"}))
    assert (finding.state, finding.said) == ("wrong", "b: GLOO_SOCKET_IFNAME=eth0, and it has eth9, lo")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1"])
def test_a_name_of_the_loopback_address_on_several_hosts(address: str) -> None:
    finding = only(network.interface({"a": FACTS, "b": replace(FACTS, own_address=address)}, {}))
    assert (finding.state, finding.said) == ("warning", "b: gloo would use lo, which no other host reaches")
    assert finding.todo.startswith("set GLOO_SOCKET_IFNAME=eth0 ")  # each host's docker0 has the same address


def test_the_advised_interface_is_one_of_all_hosts() -> None:
    several = {"lo": ["127.0.0.1"], "eno1": ["10.1.0.1"], "eth0": ["10.0.0.1"], "eth1": [], "veth3": ["10.3.0.1"]}
    facts = {"a": replace(FACTS, interfaces=several, own_address="127.0.1.1"), "b": FACTS}
    assert only(network.interface(facts, {})).todo.startswith("set GLOO_SOCKET_IFNAME=eth0 ")
    alone = replace(FACTS, interfaces={"lo": ["127.0.0.1"], "docker0": ["172.17.0.1"]}, own_address="127.0.1.1")
    assert only(network.interface({"a": alone, "b": FACTS}, {})).todo.startswith("set GLOO_SOCKET_IFNAME=NAME ")


def launcher(folder: Path, script: str) -> list[str]:
    (folder / "launcher.py").write_text(script)
    return [sys.executable, str(folder / "launcher.py")]


def test_what_the_ranks_print_is_found_among_other_lines(tmp_path: Path) -> None:
    # prints its arguments in the place of the address
    script = """
import sys
print("[2026-01-01] [INFO] [launch.py:1:main] started")
print("10.0.0.1: the ranks met at " + " ".join(sys.argv[1:]))
print("10.0.0.1: [INFO] [launch.py:2:main] Process 7 exits successfully.")
"""
    finding = meet(launcher(tmp_path, script))
    said = "the ranks met at --module deepsiam.trainer.training.engine.all_reduce"
    assert (finding.state, finding.said, finding.todo) == ("ok", said, "")


def test_a_launch_that_fails_is_explained_by_its_last_line(tmp_path: Path) -> None:
    script = """
print("b: all_reduce: rank 1: port 29500 is in use")
print("b: [INFO] [launch.py:1:sigkill_handler] Killing subprocess 7")
print("pdsh@a: b: ssh exited with exit code 2")
raise SystemExit(2)
"""
    finding = only([meet(launcher(tmp_path, script))])
    assert (finding.state, finding.said) == ("wrong", "b: all_reduce: rank 1: port 29500 is in use")
    assert meet(launcher(tmp_path, "raise SystemExit(1)")).said == "the launcher ended without a word"


def test_a_launch_that_hangs_is_ended_with_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    monkeypatch.setattr(network, "LAUNCH_SECONDS", 3)
    assert meet(launcher(tmp_path, script)).said == "the ranks did not end in 3 s"
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    pytest.fail("the launcher's child is still running")
