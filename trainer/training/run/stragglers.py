"""Name slow ranks and hosts, by comparing the time that each needs for a step with the others' time.

The monitor compares the ranks at every progress line, between two steps.

The ranks wait for each other in every step, so a slow rank slows down all, and the rate does not tell which one it is.
So the times are measured before the ranks meet: for forward passes, for waiting for data, and for messages between
neighbouring hosts. With ZeRO-3 the ranks meet within the forward pass too, so only waiting and messages show it.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.links import MESSAGE_BYTES, Ring

SLOWER = 1.5  # times the median of the others
COSTS = 0.05  # minimum share of the time that the difference must cost
WINDOW_SECONDS = 10.0  # minimum time of the compared steps: less is not informative
LINES = {
    "forward": "is slow: its forward passes take {own:.3g} s of {seconds:.3g} s, those of the others {others:.3g} s",
    "waited": "is slow: it waits for data {own:.3g} s of {seconds:.3g} s, the others {others:.3g} s",
    "message": "is slow: {size:,} bytes take {own:.3g} s from or to its host, and {others:.3g} s between others",
}


@dataclass(frozen=True)
class Slow:
    """A slow rank, or the first rank of a slow host, and the evidence for it."""

    rank: int
    kind: str  # a key of LINES
    own: float  # seconds
    others: float  # their median


def slow_ones(times: Sequence[float], least: float) -> Iterator[tuple[int, float, float]]:
    """Yield number, own time and the others' median of each that is slower by half and by `least` seconds."""
    for number, own in enumerate(times):
        others = median([*times[:number], *times[number + 1 :]])
        if own > SLOWER * others and own - others > least:
            yield number, own, others


def message_of_each(received: Sequence[Sequence[float]]) -> list[float]:
    """Return the seconds of a message from or to each host, from what each received from both neighbours (`Ring`).

    A host counts as slow as its link to the faster neighbour, so that a slow neighbour does not make it look slow. With
    two hosts, both links connect the same pair, and the sender is taken to be the slow one.
    """
    hosts = len(received)
    sent = [min(received[(host + 1) % hosts][0], received[host - 1][1]) for host in range(hosts)]
    if hosts == 2:
        return sent
    return [max(out, min(into)) for out, into in zip(sent, received, strict=True)]


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

        Args:
            steps: number of steps in the interval.
            seconds: length of the interval.
            forward: this rank's seconds in forward passes.
            waited: this rank's seconds waiting for data.
        """
        own = torch.zeros_like(self.totals)
        own[:, self.rank] = torch.tensor([forward, waited])
        totals = self.engine.sum_over_ranks(own).cpu()
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
        found = list(self._slow())
        new = [self._line(slow) for slow in found if (slow.rank, slow.kind) not in self.known]
        self.known = {(slow.rank, slow.kind) for slow in found}
        self._begin()
        return figures, new

    def _slow(self) -> Iterator[Slow]:
        least = COSTS * self.seconds
        for kind, times in zip(("forward", "waited"), self.totals.tolist(), strict=True):
            for rank, own, others in slow_ones(times, least):
                yield Slow(rank, kind, own, others)
        if self.ring:
            usual = [median(of_host) for of_host in zip(*self.messages, strict=True)]
            # a step sends about twice the size of the gradients; this is the equivalent number of messages
            messages = self.steps * 2 * self.engine.gradient_bytes / MESSAGE_BYTES
            for host, own, others in slow_ones(usual, least / messages):
                yield Slow(self.first_ranks[host], "message", own, others)

    def _line(self, slow: Slow) -> str:
        figures = {"own": slow.own, "others": slow.others, "seconds": self.seconds, "size": MESSAGE_BYTES}
        return f"rank {slow.rank} on {self.hosts[slow.rank]} {LINES[slow.kind].format(**figures)}"


def _worst(times: Sequence[float]) -> float:
    """Return the longest time, as a multiple of the median."""
    return max(times) / middle if (middle := median(times)) else math.inf
