"""Ports that tests and benchmarks may listen at."""

import socket
from collections import deque
from random import SystemRandom

# A port is asked for seconds before anything listens at it. Until then this process holds the UDP port of the same
# number, where no other process can bind it; that leaves the TCP port free. More than it needs at once are not held.
HELD: deque[socket.socket] = deque(maxlen=50)


def free_port() -> int:
    """Find a port that nothing listens at and that no other test waits for, below the range of ephemeral ports."""
    for port in SystemRandom().sample(range(20000, 29000), 1000):  # `random` may be seeded alike in two processes
        held = socket.socket(type=socket.SOCK_DGRAM)
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            continue
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                HELD.append(held)
                return port
        held.close()
    raise OSError("no port from 20000 to 28999 is free")
