"""Name slow ranks and hosts, by comparing the time that each needs for a step with the others' time.

The monitor compares the ranks at every progress line, between two steps.

The ranks wait for each other in every step, so a slow rank slows down all, and the rate does not tell which one it is.
So the times are measured before the ranks meet: for forward passes, for waiting for data, and for messages between
neighbouring hosts. With ZeRO-3 the ranks meet within the forward pass too, so only waiting and messages show it.
"""

import math
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World

# both must hold before a rank is named: small differences are noise, and cheap ones do not matter
SLOWER = 1.5  # times the median of the others
COSTS = 0.05  # minimum share of the time that the difference must cost
MESSAGE_BYTES = 1 << 18
WINDOW_SECONDS = 10.0  # minimum time of the compared steps: less is not informative
LINES = {
    "forward": "is slow: its forward passes take {:.3g} s of {:.3g} s, those of the others {:.3g} s",
    "waited": "is slow: it waits for data {:.3g} s of {:.3g} s, the others {:.3g} s",
    "message": f"is slow: {MESSAGE_BYTES:,} bytes take {{0:.3g}} s from or to its host, and {{2:.3g}} s between others",
}


@dataclass(frozen=True)
class Slow:
    """A slow rank, or the first rank of a slow host, and the evidence for it."""

    rank: int
    kind: str  # a key of LINES
    seconds: float
    median: float  # of the others


def slow_ones(times: Sequence[float], least_seconds: float) -> Iterator[tuple[int, float, float]]:
    """Yield number, time and the others' median of each that is slower by half and by `least_seconds`."""
    for number, seconds in enumerate(times):
        median_of_others = median([*times[:number], *times[number + 1 :]])
        if seconds > SLOWER * median_of_others and seconds - median_of_others > least_seconds:
            yield number, seconds, median_of_others


def message_of_each(received: Sequence[Sequence[float]]) -> list[float]:
    """Return the seconds of a message from or to each host, from what each received from both neighbours (`Ring`).

    A host counts as slow as its link to the faster neighbour, so that a slow neighbour does not make it look slow. With
    two hosts, both links connect the same pair, and the sender is taken to be the slow one.
    """
    hosts = len(received)
    sending_seconds = [min(received[(host + 1) % hosts][0], received[host - 1][1]) for host in range(hosts)]
    if hosts == 2:
        return sending_seconds
    return [max(out, min(into)) for out, into in zip(sending_seconds, received, strict=True)]


class Ring:
    """The hosts in a ring, each represented by its first rank; messages go around once in each direction."""

    def __init__(self, world: World, first_ranks: Sequence[int], device: torch.device) -> None:
        """Take the first rank of every host; needs two hosts or more."""
        self.ranks, self.device = list(first_ranks), device
        self.host = self.ranks.index(world.rank) if world.rank in self.ranks else None

    def measure(self) -> torch.Tensor:
        """Return how many seconds a message takes to each host from the previous and the next host: fp64 [hosts, 2].

        Only the row of this rank's host is nonzero; on a rank that is not a first rank all are zero. All first ranks
        call.
        """
        seconds = torch.zeros(len(self.ranks), 2, dtype=torch.float64)
        if self.host is None:
            return seconds
        for column, step in enumerate((1, -1)):
            to, source = (self.ranks[(self.host + way) % len(self.ranks)] for way in (step, -step))
            seconds[self.host, column] = self._exchange(to, source)
        return seconds

    def _exchange(self, to: int, source: int) -> float:
        """Send a message to one rank, and return the seconds until the message from another rank arrives."""
        out, into = torch.empty(2, MESSAGE_BYTES, dtype=torch.uint8, device=self.device).unbind()
        began = time.perf_counter()
        sending, *received = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
        )
        for work in received:  # NCCL has one work object for both
            work.wait()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        sending.wait()
        return seconds


class Stragglers:
    """Compare the ranks at every progress line, and name a slow one once, until it is no longer slow."""

    def __init__(self, engine: Engine) -> None:
        """Gather the hosts' names; all ranks call."""
        self.engine, self.rank, self.ranks = engine, engine.world.rank, engine.world.size
        places = engine.gather((socket.gethostname(), engine.world.local_rank))
        self.hosts = [host for host, _ in places]
        self.first_ranks = [rank for rank, (_, local_rank) in enumerate(places) if local_rank == 0]
        self.ring = Ring(engine.world, self.first_ranks, engine.device) if len(self.first_ranks) > 1 else None
        self.known: set[tuple[int, str]] = set()
        self._begin()

    def _begin(self) -> None:
        self.seconds, self.steps = 0.0, 0
        self.totals = torch.zeros(2, self.ranks, dtype=torch.float64)  # seconds: forward passes, waiting for data
        self.messages: list[list[float]] = []  # at every progress line, for each host

    def compare(self, steps: int, seconds: float, forward: float, waited: float) -> tuple[dict[str, float], list[str]]:
        """Return figures for an interval, and a line for each rank or host that has become slow; all ranks call.

        `steps` took `seconds`, of which this rank spent `forward` in forward passes and `waited` for data.
        """
        part = torch.zeros_like(self.totals)
        part[:, self.rank] = torch.tensor([forward, waited])
        totals = self.engine.sum_over_ranks(part).cpu()
        self.seconds, self.steps, self.totals = self.seconds + seconds, self.steps + steps, self.totals + totals
        figures = {
            "ranks/forward_slowest": _worst(totals[0].tolist()),
            "ranks/data_wait_longest": float(totals[1].max()) / seconds,
        }
        if self.ring:
            self.messages.append(message_of_each(self.engine.sum_over_ranks(self.ring.measure()).tolist()))
            figures["ranks/message_slowest"] = _worst(self.messages[-1])
        if self.seconds < WINDOW_SECONDS:
            return figures, []
        slow_ranks = list(self._slow())
        lines = [
            f"rank {slow.rank} on {self.hosts[slow.rank]} "
            f"{LINES[slow.kind].format(slow.seconds, self.seconds, slow.median)}"
            for slow in slow_ranks
            if (slow.rank, slow.kind) not in self.known
        ]
        self.known = {(slow.rank, slow.kind) for slow in slow_ranks}
        self._begin()
        return figures, lines

    def _slow(self) -> Iterator[Slow]:
        least_seconds = COSTS * self.seconds
        for kind, times in zip(("forward", "waited"), self.totals.tolist(), strict=True):
            for rank, seconds, others_median in slow_ones(times, least_seconds):
                yield Slow(rank, kind, seconds, others_median)
        if self.ring:
            usual = [median(times) for times in zip(*self.messages, strict=True)]
            # a step sends about twice the size of the gradients; this is the equivalent number of messages
            messages = self.steps * 2 * self.engine.gradient_bytes / MESSAGE_BYTES
            for host, seconds, others_median in slow_ones(usual, least_seconds / messages):
                yield Slow(self.first_ranks[host], "message", seconds, others_median)


def _worst(times: Sequence[float]) -> float:
    return max(times) / middle if (middle := median(times)) else math.inf
