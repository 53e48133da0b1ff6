"""Measure how fast each host's messages reach its neighbours.

The monitor measures with it now and then, between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from deepsiam.trainer.training.engine.world import World

MESSAGE_BYTES = 1 << 18


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
        sent, *received = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
        )
        for work in received:  # NCCL has one work object for both
            work.wait()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        sent.wait()
        return seconds
