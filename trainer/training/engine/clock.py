"""Measure how long a device works on pieces of code, without synchronising it.

The engine measures each forward pass of a step with it, for the comparison of ranks.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class DeviceClock:
    """Add up the seconds that a device spends on the code run in `counting`.

    A GPU works through its queue while Python continues, so on a GPU events are recorded, and read only in `take`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = 0.0
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count a piece of work."""
        if self.device.type != "cuda":
            began = time.perf_counter()
            yield
            self.seconds += time.perf_counter() - began
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self.events.append((start, end))

    def take(self) -> float:
        """Return the seconds counted since the last call; wait until the device has finished the counted work."""
        if self.events:
            self.events[-1][1].synchronize()  # the last one alone: a queue ends in order
            self.seconds += sum(start.elapsed_time(end) for start, end in self.events) / 1000
        seconds, self.seconds, self.events = self.seconds, 0.0, []
        return seconds
