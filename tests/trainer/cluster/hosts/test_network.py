"""The network checks: the interfaces that the ranks will use, and what is reported when a fake launcher ends."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deepsiam.trainer.cluster.hosts import network
from deepsiam.trainer.cluster.hosts.facts import HostFacts
from deepsiam.trainer.cluster.hosts.network import bandwidth, seconds_of, sum_over_ranks
from deepsiam.trainer.training.engine.all_reduce import Measured
from tests.trainer.cluster.hosts.finding import only

INTERFACES = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.1"], "docker0": ["172.17.0.1"], "ib0": ["10.1.0.1"]}
FACTS = HostFacts({}, [], 0, 0.0, 0, [], True, INTERFACES, "10.0.0.1")
TWO = {"a": FACTS, "b": FACTS}
GPUS = {host: replace(facts, gpus=[80]) for host, facts in TWO.items()}
# four ranks, 3,000,000 bytes in 0.011 s; 0.001 s of that pass before the first byte
FOUND = Measured(4, "10.0.0.1", 3_000_000, 0.011, 0.001, [{"lo": 10, "eth0": 13_500_000}, {}, {}, {}])


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


def test_ranks_that_meet_are_ok_and_those_that_do_not_are_wrong() -> None:
    finding = only(network.measured(FOUND, "abcd", 3_000_000))
    assert finding.state == "ok"
    assert finding.said == (
        "0.409 GB/s out of a rank, 1.00 ms: the sum of a step's gradients, 3.0 MB, takes 0.011 s; over eth0"
    )
    assert network.in_seconds(437.2) == "437 s"
    assert "takes 0.11 s (by 3.0 MB of them)" in only(network.measured(FOUND, "abcd", 33_000_000)).said
    finding = only(network.measured("rank 1: the ranks did not meet", "abcd", 3_000_000))
    assert (finding.state, finding.said) == ("wrong", "rank 1: the ranks did not meet")


def test_hosts_that_are_one_machine() -> None:
    on_loopback = replace(FOUND, sent=[{"lo": 13_500_000}] * 4)
    assert only(network.measured(on_loopback, "abcd", 10)).state == "warning"
    assert only(network.measured(on_loopback, "aaaa", 10)).state == "ok"


def test_gradients_that_no_interface_carried() -> None:
    assert only(network.measured(replace(FOUND, sent=[{"eth0": 900}] * 4), "aaaa", 10)).said.endswith("no interface")
    assert network.used(replace(FOUND, sent=[{}] * 4)) == ""


def test_bytes_and_seconds_of_a_ring() -> None:
    # the tensor has four parts; every rank sends three to reduce-scatter and three to all-gather: 6 x 750,000 bytes
    assert bandwidth(FOUND) == pytest.approx(6 * 750_000 / 0.011)
    assert seconds_of(FOUND, 3_000_000) == pytest.approx(0.011)
    assert seconds_of(FOUND, 30_000_000) == pytest.approx(0.001 + 10 * 0.010)


def launcher(folder: Path, script: str) -> list[str]:
    (folder / "launcher.py").write_text(script)
    return [sys.executable, str(folder / "launcher.py")]


def test_what_the_ranks_print_is_found_among_other_lines(tmp_path: Path) -> None:
    # prints its arguments in the place of the address
    script = """
import sys
print("[2026-01-01] [INFO] [launch.py:1:main] started")
print('10.0.0.1: {"ranks": 4, "address": "' + " ".join(sys.argv[1:]) + '", "size": 3, "seconds": 1.0, '
      '"latency": 0.5, "sent": []}')
print("10.0.0.1: [INFO] [launch.py:2:main] Process 7 exits successfully.")
"""
    found = sum_over_ranks(launcher(tmp_path, script), 10, "float32")
    assert found == Measured(4, "--module deepsiam.trainer.training.engine.all_reduce 10 float32", 3, 1.0, 0.5, [])


def test_a_launch_that_fails_is_explained_by_its_last_line(tmp_path: Path) -> None:
    script = """
print("b: all_reduce: rank 1: port 29500 is in use")
print("b: [INFO] [launch.py:1:sigkill_handler] Killing subprocess 7")
print("pdsh@a: b: ssh exited with exit code 2")
raise SystemExit(2)
"""
    assert sum_over_ranks(launcher(tmp_path, script), 1, "float32") == "b: all_reduce: rank 1: port 29500 is in use"
    silent = sum_over_ranks(launcher(tmp_path, "raise SystemExit(1)"), 1, "float32")
    assert silent == "the launcher ended without a word"


def test_a_launch_that_hangs_is_ended_with_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    monkeypatch.setattr(network, "LAUNCH_SECONDS", 3)
    assert sum_over_ranks(launcher(tmp_path, script), 1, "float32") == "the ranks did not end in 3 s"
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    pytest.fail("the launcher's child is still running")
