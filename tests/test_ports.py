"""Ports of tests: no two processes are given the same one."""

import subprocess
import sys

from tests import ports, toy


def test_two_processes_get_different_ports(monkeypatch):
    class Same(ports.SystemRandom):
        def sample(self, population, k):
            return population[:k]

    monkeypatch.setattr(ports, "SystemRandom", Same)
    first, second = ports.free_port(), ports.free_port()
    in_order = "from tests import ports; ports.SystemRandom.sample = lambda self, all, k: all[:k]; "
    other = subprocess.run(
        [sys.executable, "-c", f"{in_order} print(ports.free_port())"], cwd=toy.ROOT, capture_output=True, text=True
    )
    assert int(other.stdout) not in (first, second)
    assert first != second
