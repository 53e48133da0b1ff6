"""Ports that tests and benchmarks may listen at."""

import random
import socket


def free_port() -> int:
    """Find a port that nothing listens at, below the system's range of ephemeral ports."""
    for port in random.sample(range(20000, 29000), 1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise OSError("no port from 20000 to 28999 is free")
