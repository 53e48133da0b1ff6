"""A switch in user space that delivers frames late, for hosts in network namespaces.

    python -m benchmarks.scaling.delayed_switch DELAY_FILE CABLE NAMESPACE=ADDRESS ...

The kernel itself can delay packets (netem), but not every kernel is built with netem. Here a TAP device replaces every
host's CABLE, and this process passes each frame on after the seconds that DELAY_FILE holds at that time.
"""

import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

MTU = 9000  # few large frames: Python passes some thousand a second
TUNSETIFF, TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
POLL_SECONDS = 0.05  # between two looks at the delay


class Switch:
    """Learns which port each address is behind; keeps each frame until it is due."""

    def __init__(self, ports: int) -> None:
        """Connect `ports` ports."""
        self.ports, self.delay = ports, 0.0
        self.port_of: dict[bytes, int] = {}
        self.waiting: list[tuple[float, int, int, bytes]] = []  # due time, number in order of arrival, port, frame
        self.received = 0

    def receive(self, port: int, frame: bytes, now: float) -> None:
        """Take a frame from a port, to deliver to its destination's port, or to all other ports if that is unknown."""
        destination, source = frame[:6], frame[6:12]
        self.port_of[source] = port
        known = self.port_of.get(destination)
        for other in range(self.ports) if known is None else [known]:
            if other != port:
                self.received += 1
                heapq.heappush(self.waiting, (now + self.delay, self.received, other, frame))

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """Return the frames to deliver now, each with its port, in the order of their due times."""
        frames = []
        while self.waiting and self.waiting[0][0] <= now:
            _, _, port, frame = heapq.heappop(self.waiting)
            frames.append((port, frame))
        return frames

    def wait(self, now: float) -> float:
        """Return the seconds until the next frame is due, at most POLL_SECONDS."""
        return min(POLL_SECONDS, max(0.0, self.waiting[0][0] - now)) if self.waiting else POLL_SECONDS


def serve(cables: Sequence[int], delay_file: Path) -> None:
    """Pass frames between open TAP devices forever."""
    switch, looked = Switch(len(cables)), 0.0
    port_of = {cable: port for port, cable in enumerate(cables)}
    while True:
        readable, _, _ = select.select(cables, [], [], switch.wait(time.monotonic()))
        now = time.monotonic()
        if now - looked > POLL_SECONDS:
            looked, switch.delay = now, float(delay_file.read_text())
        for cable in readable:
            switch.receive(port_of[cable], os.read(cable, MTU + 100), now)
        for port, frame in switch.due(time.monotonic()):
            os.write(cables[port], frame)


def connect(cable: str, namespace: str, address: str) -> int:
    """Replace a host's cable by a TAP device; return its open file."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    name = f"tap{os.getpid()}"
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), TAP_WITHOUT_HEADER))
    for words in (
        ("-n", namespace, "link", "delete", cable),
        ("link", "set", name, "netns", namespace, "name", cable, "mtu", str(MTU)),
        ("-n", namespace, "address", "add", f"{address}/24", "dev", cable),
        ("-n", namespace, "link", "set", cable, "up"),
    ):
        subprocess.run(["ip", *words], check=True)
    return tap


def main() -> None:
    """Run the command."""
    delay_file, cable, *hosts = sys.argv[1:]
    cables = [connect(cable, *host.split("=")) for host in hosts]
    print("ready", flush=True)
    serve(cables, Path(delay_file))


if __name__ == "__main__":
    main()
